"""All-to-all and token dispatch over EFA and InfiniBand against published benchmarks."""

import numpy as np
import pytest

from hwmodels.cluster import clusters

MIB = 2**20

# nccl-tests, bus bandwidth in GB/s: p5 (crazyguitar/aws-gpu-communication-benchmark, data/nccl_alltoall.csv),
# p6-b300 (awslabs/awsome-distributed-ai, ep-backend-comparison/RESULTS.md at 46793a8).
PUBLISHED = [
    ("aws-p5", 2, 256 * MIB, 74.26),
    ("aws-p5", 2, 2048 * MIB, 79.25),
    ("aws-p5", 4, 64 * MIB, 43.13),
    ("aws-p5", 4, 2048 * MIB, 54.07),
    ("aws-p5", 8, 64 * MIB, 34.69),
    ("aws-p5", 8, 2048 * MIB, 49.63),
    ("aws-p5", 16, 2048 * MIB, 44.23),
    ("aws-p5", 32, 256 * MIB, 30.21),
    ("aws-p6-b300", 2, 64 * MIB, 104.9),
    ("aws-p6-b300", 2, 16384 * MIB, 179.6),
    ("aws-p6-b300", 4, 16384 * MIB, 116.9),
    ("aws-p6-b300", 8, 16384 * MIB, 103.2),
    ("aws-p6-b300", 16, 16384 * MIB, 84.0),
]


@pytest.mark.parametrize(("cluster", "nodes", "size", "bus"), PUBLISHED)
def test_all_to_all_over_efa(cluster, nodes, size, bus):
    ranks = 8 * nodes
    priced = clusters.get(cluster).resized(ranks)
    seconds = priced.collective("all_to_all", np.array([float(size)]), np.array([float(ranks)]), np.ones(1))[
        0
    ]
    assert seconds == pytest.approx(size * (ranks - 1) / ranks / (bus * 1e9), rel=0.2)


@pytest.mark.parametrize(
    ("cluster", "library", "gbps"),
    [
        ("aws-p5", "nvshmem", (43.7, 46.1, 39.6, 39.2)),
        ("aws-p5", "uccl", (38.2, 30.2, 29.9, 26.7)),
        ("aws-p6-b300", "nvshmem", (97.1, 95.4, 84.2, 73.1)),
        ("aws-p6-b300", "uccl", (102.1, 95.3, 93.9, 90.5)),
        # DeepEP's own on H800 with 400 Gb/s a GPU, 32 and 64 ranks (docs/legacy.md).
        ("dgx-h100", "deepep", (58.0, 57.0, 51.0, 50.0)),
    ],
)
def test_rates_of_dispatchers_are_those_of_their_benchmarks(cluster, library, gbps):
    network = clusters.get(cluster).network
    rate = network.dispatcher(library).share * network.bandwidth / 8 / 1e9
    assert min(gbps) <= rate <= max(gbps)


def dispatched_over(cluster, library, ranks, dispatch, combine):
    """Predicted over measured seconds of 4,096 tokens of 7,168, top 8."""
    found = clusters.get(cluster).resized(ranks)
    size = 4096 * ranks * (1 - (1 - 1 / ranks) ** 8) * 7168 * 2
    exchanged = found.collective("all_to_all", np.array([size]), np.array([float(ranks)]), np.ones(1))[0]
    share = dict(found.levels[-1].dispatcher(library))[ranks]
    return exchanged / share / (size / 1e9 * (1 / dispatch + 1 / combine) / 2)


@pytest.mark.parametrize(
    ("cluster", "library", "ranks", "dispatch", "combine"),
    [
        # GB/s of 4,096 tokens of 7,168, top 8, by the torch interface (DeepEP, docs/README_Hybrid-EP.md).
        ("dgx-b200", "hybridep", 8, 535.94, 530.86),
        ("dgx-b200", "deepep", 8, 494, 420),
        # The same tokens on 20 multiprocessors (TileScale, DeepEP example's README).
        ("dgx-h100", "deepep", 8, 328.97, 287.14),
        ("gb200-nvl72", "hybridep", 8, 550.10, 538.44),
        ("gb200-nvl72", "hybridep", 16, 472.84, 474.48),
        ("gb200-nvl72", "hybridep", 36, 469.96, 418.27),
        ("gb200-nvl72", "deepep", 16, 442.47, 378.32),
    ],
)
def test_dispatch_inside_a_domain(cluster, library, ranks, dispatch, combine):
    assert dispatched_over(cluster, library, ranks, dispatch, combine) == pytest.approx(1, rel=0.03)


def test_slow_links_hide_the_pace_of_multiprocessors():
    # DeepEP on H800, whose links have 0.44 of H100's bandwidth (docs/legacy.md).
    assert dispatched_over("hgx-h800", "deepep", 8, 153, 158) == pytest.approx(1, rel=0.06)
