"""All-reduces and exchanges of serving engines: their own kernels for small messages, NCCL for large ones.

Small machines on a slow network may reduce in a star instead, two hops for a ring's 2 (n - 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodels.cluster import Cluster
from hwmodels.collectives.remote_reads import remote_read_seconds
from simulator.serving.engines import Engine

Array = NDArray[np.float64]

DEEPEP_BARRIERS = 2.6
"""Start of a DeepEP kernel over that of an all-reduce by remote reads, which has one barrier: its low-latency
dispatch and combine take 12.5 us each on 8 H200, 22 on 8 B200 and 17.5 on 4 GB200 and GB300, for 1 to 16
tokens of a rank (2.5, 2.75, 2.5 times; aiconfigurator 0.12, wideep_deepep_ll_perf of SGLang 0.5.12)."""


def star_seconds(cluster: Cluster, ranks: int, size: Array) -> Array:
    """Return seconds in which all ranks send to one of them, and receive the sum from it.

    Its link carries all messages in and out, so a star takes two latencies and (ranks - 1) messages each way:
    it is the faster where latency exceeds the time of the bytes. TPI-LLM (Li et al., arXiv 2410.00531).

    Args:
        cluster, ranks, size: as in `all_reduce_seconds`.
    """
    stride = 1 if ranks <= cluster.domain else cluster.domain
    return 2.0 * cluster.collective("send_receive", (ranks - 1) * np.asarray(size), 2, stride)


def all_reduce_seconds(
    cluster: Cluster, ranks: int, size: Array, engine: Engine, star: bool = False
) -> Array:
    """Return seconds of an all-reduce over neighbouring ranks: the engine's own kernel or NCCL, the faster.

    Args:
        cluster: the all-reduce uses its innermost links.
        ranks: number of ranks in the group.
        size: bytes of each rank's message.
        engine: sets the largest message, B, of its own all-reduce kernel.
        star: through one rank instead.
    """
    if ranks == 1:
        return np.zeros(np.shape(size))
    if star:
        return star_seconds(cluster, ranks, size)
    nccl = cluster.collective("all_reduce", size, ranks)
    level = cluster.levels[0]
    remote_reads = level.constants.remote_reads
    if remote_reads is None or ranks > min(level.devices, remote_reads.most_ranks):
        return nccl
    # Of a full mesh, ranks use the links between them.
    share = (ranks - 1) / (level.devices - 1) if level.mesh else 1.0
    custom = remote_read_seconds(remote_reads, share * level.bandwidth, np.asarray(float(ranks)), size)
    return np.where(size <= engine.custom_all_reduce_bytes.value, np.minimum(custom, nccl), nccl)


def exchange_seconds(cluster: Cluster, ranks: int, sent: Array, deepep: bool = False) -> Array:
    """Return seconds of an all-to-all over neighbours: direct writes or NCCL, the faster; or DeepEP's.

    Inside a domain of fast links, kernels such as DeepEP's write each token into the memory of the ranks that
    need it: one barrier, then what a rank receives.

    Args:
        cluster: provides the links.
        ranks: number of ranks in the group.
        sent: bytes that each rank sends.
        deepep: whether its kernels write, inside a domain.
    """
    library = cluster.collective("all_to_all", sent, ranks)
    level = cluster.levels[0]
    remote_reads = level.constants.remote_reads
    if remote_reads is None or ranks > level.devices:
        return library
    start = remote_reads.start_s + remote_reads.rank_s * (min(ranks, remote_reads.most_ranks) - 2)
    share = (ranks - 1) / (level.devices - 1) if level.mesh else 1.0
    written_s = sent / (remote_reads.efficiency * share * level.bandwidth)
    return DEEPEP_BARRIERS * start + written_s if deepep else np.minimum(library, start + written_s)
