"""Traffic of collectives: bytes are conserved over levels, and no link carries more than it can."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UnknownNameError
from hwmodels.cluster import clusters
from hwmodels.collectives.traffic import traffic

BUS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "send_receive": lambda n: 1.0,
}
powers = st.integers(0, 7).map(lambda power: 2**power)
operations = st.sampled_from(sorted(BUS))


@given(operations, powers, powers)
def test_levels_add_up_to_the_bus_bytes_of_nccl_tests(operation, size, stride):
    moved = traffic(operation, 1e9, size, stride, (2, 8))
    assert moved.shape == (3,)
    assert (moved >= 0).all()
    assert moved.sum() == pytest.approx(1e9 * BUS[operation](size) if size > 1 else 0.0)


@given(operations, st.integers(1, 3).map(lambda power: 2**power))
def test_a_group_in_one_node_leaves_the_network_alone(operation, size):
    assert traffic(operation, 1e9, size, 1, (8,))[-1] == 0.0


@given(operations, st.integers(1, 4).map(lambda power: 2**power))
def test_a_group_of_one_rank_a_node_uses_the_network_only(operation, size):
    assert traffic(operation, 1e9, size, 8, (8,))[0] == 0.0


def test_a_ring_leaves_a_node_once_and_pairs_leave_it_mostly():
    ring = traffic("all_gather", 64.0, 64, 1, (8,))
    assert ring.tolist() == [63 * 7 / 8, 63 / 8]
    pairs = traffic("all_to_all", 64.0, 64, 1, (8,))
    assert pairs.tolist() == pytest.approx([7.0, 56.0])


@pytest.mark.parametrize("name", ["dgx-a100-80gb", "dgx-h100", "frontier"])
@pytest.mark.parametrize("operation", sorted(BUS))
def test_no_collective_is_faster_than_its_links_carry_its_bytes(name, operation):
    cluster = clusters.get(name).resized(256)
    size, stride = (grid.ravel() for grid in np.meshgrid([2, 4, 8, 32, 128], [1, 2, 4, 8], indexing="ij"))
    fits = size * stride <= 256
    size, stride = size[fits], stride[fits]
    moved = traffic(operation, 1e9, size, stride, [level.devices for level in cluster.levels])
    taken = cluster.collective(operation, 1e9, size, stride, in_switch=False)
    capacity = [level.bandwidth for level in cluster.levels]
    # A lone group reaches all NICs of its nodes; with every device at work a device has its share of them.
    capacity.append(cluster.network.bandwidth / cluster.devices_per_node)
    for sent, bandwidth in zip(moved, capacity, strict=True):
        assert (taken >= 0.999 * sent / bandwidth).all()


def test_an_unknown_operation_is_named():
    with pytest.raises(UnknownNameError, match="all_reduce"):
        traffic("allreduce", 1.0, 2, 1, (8,))
