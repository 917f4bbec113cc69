"""Collective times: limits, conservation, and what others measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UnknownNameError
from hwmodels.cluster import clusters
from hwmodels.collectives import ALGORITHMS, smooth_minimum
from hwmodels.collectives.calibration import FAMILIES, fabric_calibrations, link_calibrations

GB = 1e9


def bus_bandwidth(cluster, operation, bytes_, size, **how):
    """Return GB/s as nccl-tests counts them."""
    moved = {"all_reduce": 2.0}.get(operation, 1.0) * (size - 1) / size * bytes_
    return float(moved / cluster.collective(operation, bytes_, size, **how) / GB)


# What others measured, most of it large messages: nccl-tests bus bandwidth, GB/s.
PUBLISHED = [
    # Azure AI benchmarking guide, 8 GiB
    ("azure-nd-a100-v4", "all_reduce", 8, 8 * 2**30, {}, 231.6),
    ("azure-nd-h100-v5", "all_reduce", 8, 8 * 2**30, {}, 478.9),
    ("mi300x-8", "all_reduce", 8, 8 * 2**30, {}, 316.8),
    # ml-engineering, network benchmarks: NVLS off is a ring, and groups of 4 use one anyway
    ("dgx-h200", "all_reduce", 8, 8 * 2**30, {"in_switch": False}, 365.6),
    ("dgx-h200", "all_reduce", 6, 8 * 2**30, {}, 435.6),
    ("dgx-h200", "all_reduce", 4, 8 * 2**30, {}, 363.3),
    ("aws-p6-b200", "all_reduce", 8, 8 * 2**30, {}, 838.0),
    ("aws-p6-b200", "all_reduce", 5, 8 * 2**30, {}, 677.8),
    ("mi300x-8", "all_reduce", 2, 4 * 2**30, {}, 47.7),
    # Azure aks-rdma-infiniband, two nodes
    ("azure-nd-a100-v4", "all_reduce", 16, 2**31, {}, 184.3),
    # create-a3mega, GPUDirect-TCPXO, two nodes
    ("gcp-a3-mega", "all_reduce", 16, 2**33, {}, 338.8),
    ("gcp-a3-mega", "all_reduce", 16, 2**24, {}, 32.2),
    # LUMI: ReFrame reference for two nodes alone; training logs with a ring per GCD
    ("lumi", "all_reduce", 16, 2**31, {}, 85.0),
    ("lumi", "all_reduce", 32, 2931315179, {"stride": 8}, 4.97),
    ("lumi", "all_gather", 4, 1464315412, {"stride": 8}, 4.72),
]


@pytest.mark.parametrize(("name", "operation", "size", "bytes_", "how", "measured"), PUBLISHED)
def test_published_bandwidths(name, operation, size, bytes_, how, measured):
    cluster = clusters.get(name)
    stride = how.get("stride", 1)
    job = cluster.resized(size * stride if size * stride > 8 else size)
    assert bus_bandwidth(job, operation, bytes_, size, **how) == pytest.approx(measured, rel=0.1)


def test_a_pipeline_neighbour_on_lumi():
    time = clusters.get("lumi").collective("send_receive", 14680064, 2, 8)
    assert time == pytest.approx(2.26e-3, rel=0.05)  # LUMI 175B training logs, 14 MiB


@pytest.mark.parametrize("operation", FAMILIES)
def test_a_group_of_one_costs_nothing(operation):
    assert np.all(clusters.get("dgx-h100").collective(operation, [0, 1e6, 1e12], 1, [1, 8, 64]) == 0)


def test_arrays_are_many_scalars():
    cluster = clusters.get("lumi").resized(256)
    bytes_ = np.array([1e3, 1e6, 1e9])[:, np.newaxis, np.newaxis]
    size = np.array([1, 2, 8, 16, 12])[:, np.newaxis]
    stride = np.array([1, 2, 8, 3])
    for operation in FAMILIES:
        together = cluster.collective(operation, bytes_, size, stride)
        assert together.shape == (3, 5, 4)
        for index in np.ndindex(together.shape):
            i, j, k = index
            alone = cluster.collective(operation, bytes_[i, 0, 0], size[j, 0], stride[k])
            assert together[index] == pytest.approx(float(alone))


@given(
    name=st.sampled_from(["dgx-a100-80gb", "gb200-nvl72", "frontier", "mi300x-8", "gcp-a3-mega"]),
    operation=st.sampled_from(sorted(FAMILIES)),
    size=st.integers(2, 96),
    stride=st.integers(1, 96),
    bytes_=st.floats(1, 1e11),
    factor=st.floats(1, 100),
)
def test_more_bytes_take_longer_but_not_in_proportion(name, operation, size, stride, bytes_, factor):
    cluster = clusters.get(name)
    little, much = cluster.collective(operation, [bytes_, factor * bytes_], size, stride)
    assert little <= much * (1 + 1e-9)
    assert much <= factor * little * (1 + 1e-9)


@given(
    operation=st.sampled_from(sorted(FAMILIES)),
    size=st.integers(2, 64),
    stride=st.integers(1, 64),
    bytes_=st.floats(1, 1e11),
)
def test_company_never_helps(operation, size, stride, bytes_):
    cluster = clusters.get("dgx-a100-80gb")
    alone = cluster.collective(operation, bytes_, size, stride, concurrent=False)
    assert cluster.collective(operation, bytes_, size, stride) >= alone * (1 - 1e-9)


@given(
    operation=st.sampled_from(sorted(FAMILIES)),
    size=st.integers(2, 64),
    stride=st.integers(1, 64),
    bytes_=st.floats(1, 1e11),
    gbps=st.floats(50, 3200),
)
def test_a_faster_nic_never_hurts(operation, size, stride, bytes_, gbps):
    cluster = clusters.get("dgx-h100")
    slow, fast = (
        cluster.with_network(g).collective(operation, bytes_, size, stride) for g in (gbps, 2 * gbps)
    )
    assert fast <= slow * (1 + 1e-9)


@pytest.mark.parametrize("name", ["dgx-a100-80gb", "jean-zay-a100", "leonardo", "fire-flyer-2"])
def test_a_ring_never_beats_the_wire(name):
    """However groups are laid out, a node's NICs carry no more than they can."""
    cluster = clusters.get(name)
    for stride in (1, 2, cluster.devices_per_node, 3 * cluster.devices_per_node):
        size = 4 * cluster.devices_per_node
        groups_on_a_node = min(stride, cluster.devices_per_node)
        bus = bus_bandwidth(cluster, "all_gather", 64e9, size, stride=stride)
        assert bus * groups_on_a_node <= cluster.network.bandwidth / GB


def test_groups_share_a_nodes_nics():
    cluster = clusters.get("dgx-a100-80gb").resized(128)
    whole, half, one = (bus_bandwidth(cluster, "all_gather", 1e11, 16, stride=s) for s in (1, 2, 8))
    assert half == pytest.approx(whole / 2, rel=0.02)
    assert one == pytest.approx(whole / 8, rel=0.02)
    single = clusters.get("fire-flyer-2").resized(128)
    crowd = bus_bandwidth(single, "all_gather", 1e11, 16, stride=8)
    alone = bus_bandwidth(single, "all_gather", 1e11, 16, stride=8, concurrent=False)
    assert alone == pytest.approx(8 * crowd, rel=0.02)


def test_a_tree_wins_where_latency_rules():
    cluster = clusters.get("dgx-a100-80gb")
    times = cluster.collective("all_reduce", 1024, [16, 64, 256, 1024], 8)
    steps = np.diff(times)
    assert np.all(steps < 8 * fabric_calibrations.get("infiniband").collective.ll.step_s)
    # A ring's latency grows with its ranks.
    assert cluster.collective("all_gather", 1024, 1024, 8) > 5 * times[-1]


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    """Rings move the same bytes either way; only measured constants differ a little."""
    for name in ("dgx-a100-80gb", "dgx-h100", "lumi"):
        cluster = clusters.get(name).resized(512)
        for size, stride in ((8, 1), (64, 1), (64, 8)):
            both = cluster.collective("reduce_scatter", 1e10, size, stride)
            both = both + cluster.collective("all_gather", 1e10, size, stride)
            together = cluster.collective("all_reduce", 1e10, size, stride, in_switch=False)
            assert together == pytest.approx(float(both), rel=0.1)


def test_all_to_all_pays_for_what_leaves_the_node():
    cluster = clusters.get("dgx-h100").resized(64)
    network = cluster.network
    time = float(cluster.collective("all_to_all", 1e11, 64))
    leaves = 8 * 1e11 * 56 / 64
    constants = fabric_calibrations.get("infiniband")
    rate = network.bandwidth * constants.collective.simple.efficiency * constants.all_to_all_efficiency
    assert time == pytest.approx(leaves / rate, rel=0.01)


def test_groups_that_straddle_nodes_are_as_slow_as_the_worst():
    cluster = clusters.get("dgx-h100").resized(48)
    inside, straddling = cluster.collective("all_gather", 1e9, [4, 6])
    assert straddling > 2 * inside
    two, three = cluster.collective("send_receive", 1e9, 2, [4, 3])
    assert three > 2 * two


def test_oversubscription_slows_groups_that_leave_their_leaf():
    cluster = clusters.get("dgx-h100").resized(1024)
    definition = cluster.model_dump()
    definition["network"] |= {"oversubscription": 4.0, "nodes_per_leaf": 16}
    narrow = clusters.get(definition)
    for size, stride in ((128, 1), (16, 8), (256, 1)):  # in a leaf, or leaving it on one node in sixteen
        same = [float(c.collective("all_gather", 1e10, size, stride)) for c in (cluster, narrow)]
        assert same[0] == pytest.approx(same[1], abs=5e-6)  # a few hops over the spine
    far = [float(c.collective("all_gather", 1e10, 8, 128)) for c in (cluster, narrow)]
    assert far[1] == pytest.approx(4 * far[0], rel=0.05)


def test_a_ring_over_omni_path_uses_one_adapter_and_several_rings_use_more():
    """bigscience, experiments/bandwidth: 39.9 and 40.5 Gbit/s for 4 GB on four nodes of 4 x 100 Gbit/s."""
    four = clusters.get("jean-zay-a100").resized(32)
    moved = 4e9 * 2 * 31 / 32
    alone = moved / float(four.collective("all_reduce", 4e9, 32)) * 8 / 1e9
    assert alone == pytest.approx(40.5, rel=0.02)
    one_of_four = 4e9 * 2 * 7 / 8 / float(four.collective("all_reduce", 4e9, 8, 4)) * 8 / 1e9
    assert 2 * alone < 4 * one_of_four <= 4 * alone * 1.01
    later = four.with_network(400, calibration="omni-path-2024")
    assert alone < moved / float(later.collective("all_reduce", 4e9, 32)) * 8 / 1e9 < 4 * alone
    assert later.collective("all_reduce", 4e9, 8, 4) == four.collective("all_reduce", 4e9, 8, 4)


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_rings_of_part_of_a_node_share_nics_by_device_over_slingshot(stride):
    """LUMI's 175B logs: 4.7 to 5.0 GB/s a GCD, eight rings a node; a ring of all GCDs reaches 85 of 100."""
    lumi = clusters.get("lumi").resized(256)
    ranks = 256 // stride
    moved = 1e10 * (ranks - 1) / ranks
    rate = moved / float(lumi.collective("all_gather", 1e10, ranks, stride))
    assert rate == pytest.approx(4.8e9, rel=0.1)
    whole = 1e10 * 255 / 256 / float(lumi.collective("all_gather", 1e10, 256))
    assert whole > 8 * rate


def test_rings_keep_their_members_nics_over_slingshot_where_each_device_has_one():
    perlmutter = clusters.get("perlmutter").resized(64)
    rates = [
        1e10 / float(perlmutter.collective("all_gather", 1e10, 64 // stride, stride)) for stride in (2, 4)
    ]
    assert rates[0] == pytest.approx(2 * rates[1], rel=0.1)


def test_a_rack_of_72_is_one_domain():
    rack, nodes = clusters.get("gb200-nvl72").resized(64), clusters.get("dgx-b200").resized(64)
    assert rack.collective("all_gather", 1e9, 64) < 0.8 * nodes.collective("all_gather", 1e9, 64)


def test_unknown_operation():
    with pytest.raises(UnknownNameError, match="unknown collective 'allreduce'; did you mean 'all_reduce'"):
        clusters.get("dgx-h100").collective("allreduce", 1e6, 8)


def test_every_operation_has_an_algorithm():
    assert set(FAMILIES) == {name for algorithm in ALGORITHMS for name in algorithm.OPERATIONS}


def test_calibrations_are_physical():
    for link in link_calibrations:
        for family in set(FAMILIES.values()):
            protocols = getattr(link, family)
            efficiencies = [protocols.ll.efficiency, protocols.ll128.efficiency, protocols.simple.efficiency]
            assert efficiencies == sorted(efficiencies), link.name
            assert efficiencies[-1] < 1
            assert protocols.ll.start_s < 50e-6
        assert link.in_switch is None or link.in_switch.efficiency < 1
    for fabric in fabric_calibrations:
        assert fabric.collective.simple.efficiency < 1
        assert fabric.shared_efficiency <= 1
        assert (fabric.median_error is None) == (fabric.rows == 0)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=6))
def test_smooth_minimum_is_a_little_below_the_minimum(times):
    smooth = smooth_minimum(np.array(times))
    assert min(times) * len(times) ** (-1 / 8) * (1 - 1e-9) <= smooth <= min(times) * (1 + 1e-9)


@pytest.mark.parametrize(("ranks", "stride"), [(4, 2), (8, 1), (16, 1), (64, 4), (16, 8)])
def test_a_hop_of_a_chain_is_the_mean_of_its_sends(ranks, stride):
    """But for the protocol, one for all hops."""
    cluster = clusters.get("dgx-h100")
    job = cluster.resized(max(ranks * stride, 8))
    far = max(ranks * stride // 8, 1) - 1
    near = job.collective("send_receive", 2**20, 2, 1)
    across = job.collective("send_receive", 2**20, ranks, stride)
    mean = ((ranks - 1 - far) * near + far * across) / (ranks - 1)
    assert job.collective("chain", 2**20, ranks, stride) == pytest.approx(float(mean), rel=0.03)


def test_all_scan_of_zeco():
    """Chou et al. 2025 (arXiv 2507.01004), table of exchanges: states of 2 MiB pass H100s in blocks."""
    cluster, block = clusters.get("dgx-h100"), 2**21 / 8
    for ranks, measured_s in {16: 0.297e-3, 32: 0.448e-3, 64: 0.739e-3, 128: 1.272e-3}.items():
        job = cluster.resized(ranks)
        hops = (ranks - 1) * job.collective("chain", block, ranks)
        blocks = 7 * job.collective("send_receive", block, ranks)
        assert hops + blocks == pytest.approx(measured_s, rel=0.25)
