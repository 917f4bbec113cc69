"""All-reduce of serving engines: their own kernels for small messages, NCCL for large ones.

A one-shot kernel reads every rank's message; a two-shot kernel reduces shards, then gathers them. Starts
are those of measured kernels (vLLM 0.14 and 0.24, TensorRT-LLM 1.0 and 1.3, 2 and 8 ranks), by the
calibration of the links.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodels.cluster import Cluster
from simulator.serving.engines import Engine

Array = NDArray[np.float64]

STARTS = {"nvlink3": (5.0e-6, 0.2e-6), "nvlink4": (4.2e-6, 0.15e-6), "nvlink5": (6.9e-6, 0.12e-6)}
"""Seconds of an empty one-shot kernel between two ranks, and of each further rank."""
SECOND_SHOT_S = 4.0e-6
"""Further start of the two-shot kernel."""
EFFICIENCY = 0.7
"""Share of the link's bandwidth that remote reads reach: two ranks on H100 take 8.4 us for 1 MiB."""


def all_reduce_seconds(cluster: Cluster, ranks: int, size: Array, engine: Engine) -> Array:
    """Return seconds of an all-reduce over neighbouring ranks, the faster of both ways.

    Args:
        cluster: whose innermost links carry it.
        ranks: of the group.
        size: bytes of each rank's message.
        engine: whose largest message for its own kernel counts.
    """
    if ranks == 1:
        return np.zeros(np.shape(size))
    nccl = cluster.collective("all_reduce", size, ranks)
    level = cluster.levels[0]
    starts = STARTS.get(level.constants.name)
    if starts is None or ranks > level.devices:
        return nccl
    start = starts[0] + starts[1] * (ranks - 2)
    rate = EFFICIENCY * level.bandwidth
    one_shot = start + (ranks - 1) * size / rate
    two_shot = start + SECOND_SHOT_S + 2 * (ranks - 1) / ranks * size / rate
    custom = np.minimum(one_shot, two_shot)
    return np.where(size <= engine.custom_all_reduce_bytes.value, np.minimum(custom, nccl), nccl)
