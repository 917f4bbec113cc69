"""The drawn and the closed-form routes say the same."""

import collections
import itertools

import networkx as nx
import numpy as np
import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from hwmodels.collectives.calibration import FAMILIES
from hwmodels.collectives.group import place

OPERATIONS = sorted(FAMILIES)


def small(name):
    """Return a job that spans several leaves of a shrunken network."""
    cluster = clusters.get(name)
    definition = cluster.model_dump()
    definition["network"]["nodes_per_leaf"] = 2
    definition["nodes"] = 8
    definition["devices"] = 8 * cluster.devices_per_node
    definition["levels"] = [
        {**level, "devices": min(level["devices"], 2 * cluster.devices_per_node)}
        for level in definition["levels"]
    ]
    return clusters.get(definition)


SHAPES = ["dgx-a100-80gb", "lumi", "leonardo", "gb200-nvl72", "aws-p5", "fire-flyer-2", "aws-p4d"]


@pytest.mark.parametrize("name", SHAPES)
def test_routes_are_the_graphs_quickest_paths(name):
    cluster = small(name)
    drawn = cluster.topology.graph()
    level_names = [level.name for level in cluster.levels]
    for one, other in itertools.product(range(0, cluster.devices, 5), range(cluster.devices)):
        links = cluster.topology.route(one, other)
        if any(link.target[0] == "device" for link in links[:-1]):  # forwarded to the receiver's rail
            one = links[1].target[1]
            links = links[2:]
        ends = [("device", one), ("device", other)]
        # Beyond that, devices do not forward, and nothing takes the network inside a domain.
        inside = one // cluster.domain == other // cluster.domain
        passing = [node for node in drawn if node[0] in level_names or (node[0] != "device" and not inside)]
        quickest = nx.shortest_path_length(drawn.subgraph([*passing, *ends]), *ends, weight="latency")
        assert sum(link.latency_s for link in links) == pytest.approx(quickest)
        for link in links:
            edge = drawn.edges[link.source, link.target]
            assert (edge["bandwidth"], edge["level"]) == (link.bandwidth, link.level)
        assert [link.target for link in links[:-1]] == [link.source for link in links[1:]]


@pytest.mark.parametrize("name", SHAPES)
def test_bisection_is_the_minimum_cut(name):
    cluster = small(name)
    drawn = cluster.topology.graph()
    half = cluster.devices // 2
    across = cluster.topology.bisection_bandwidth()
    assert cut(drawn, range(half), range(half, cluster.devices)) == pytest.approx(across["network"])
    for level in cluster.levels:
        inside = drawn.subgraph([("device", rank) for rank in range(level.devices)] + [(level.name, 0)])
        found = cut(inside, range(level.devices // 2), range(level.devices // 2, level.devices))
        assert found == pytest.approx(across[level.name])


def cut(drawn, left, right):
    """Return the bandwidth that must be cut to part two sets of ranks."""
    joined = nx.Graph()
    for one, other, data in drawn.edges(data=True):
        joined.add_edge(one, other, capacity=data["bandwidth"])
    for end, ranks in (("left", left), ("right", right)):
        for rank in ranks:
            joined.add_edge(end, ("device", rank))
    return nx.minimum_cut_value(joined, "left", "right")


def test_a_nodes_nics_add_up():
    for name in ("dgx-a100-80gb", "aws-p4d", "aws-p5", "fire-flyer-2", "gb200-nvl72"):
        cluster = clusters.get(name).resized(16 * clusters.get(name).devices_per_node)
        drawn = cluster.topology.graph()
        nics = [node for node in drawn if node[:2] == ("nic", 0)]
        total = sum(
            drawn.edges[nic, leaf]["bandwidth"] for nic in nics for leaf in drawn[nic] if leaf[0] == "leaf"
        )
        assert total == pytest.approx(cluster.network.bandwidth)


def test_a_job_in_one_node_needs_no_network():
    drawn = clusters.get("dgx-h100").resized(8).topology.graph()
    assert {data["kind"] for _, data in drawn.nodes(data=True)} == {"device", "nvlink"}


def test_a_ring_crosses_each_nic_once():
    cluster = clusters.get("dgx-h100").resized(32)
    links = cluster.topology.ring(range(32))
    out_of_node = [link for link in links if link.target[0] == "nic" and link.source[0] == "device"]
    assert len(out_of_node) == 4
    assert cluster.topology.ring([5]) == []


def test_ranks_that_are_not_there():
    cluster = clusters.get("dgx-h100").resized(16)
    assert cluster.topology.route(3, 3) == []
    with pytest.raises(InputError, match="rank 16 is not among the 16"):
        cluster.topology.route(0, 16)


def test_nvlink_forwards_to_the_receivers_rail_and_xgmi_does_not():
    for name, over_spine in (("dgx-h100", False), ("mi300x-8", True)):
        topology = clusters.get(name).resized(32).topology
        assert any(("spine",) in link for link in topology.route(3, 9)) == over_spine
        assert not any(("spine",) in link for link in topology.route(3, 11))


def groups(topology, size, stride):
    """Return groups of one kind as arrays, and the ranks of each."""
    widths = tuple(level.devices for level in topology.levels)
    placed = place(np.array([size]), np.array([stride]), widths, topology.devices)
    block = size * stride
    ranks = [
        range(first, first + block, stride)
        for base in range(0, topology.devices, block)
        for first in range(base, base + stride)
    ]
    return placed, ranks


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
def test_leaves_of_a_group_are_those_of_its_routes(name, nodes):
    cluster = small(name)
    topology = cluster.topology
    group, all_ranks = groups(topology, nodes, cluster.devices_per_node)
    rings = [topology.ring(ranks) for ranks in all_ranks]
    switches = [len({link.target for link in ring if link.target[0] == "leaf"}) for ring in rings]
    if group.domains > 1:
        assert topology.leaves("all_gather", group) == max(switches)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("stride", [1, 2])
def test_uplinks_carry_the_rings_that_cross_them(name, stride):
    """The load of the fullest uplink, all groups of a kind at once, from their routes."""
    cluster = small(name)
    definition = cluster.model_dump()
    definition["network"]["oversubscription"] = 16.0
    topology = clusters.get(definition).topology
    per_node = cluster.devices_per_node
    group, all_ranks = groups(topology, cluster.devices // per_node // stride, per_node * stride)
    if group.domains == 1:
        return
    sent = collections.Counter()
    for ranks in all_ranks:
        for link in topology.ring(ranks):
            if link.source[0] == "leaf" and link.target[0] in ("spine", "leaf"):
                sent[link.source[:2]] += 1
    most = max(sent.values()) / (topology.network.nodes_per_leaf * per_node)
    twice = 2 if topology.network.shape == "dragonfly" else 1
    assert topology.uplink_load("all_gather", group) == pytest.approx(max(16 * twice * most, 1))


def test_latency_and_shape_of_a_network_count():
    """Five milliseconds a hop are five milliseconds a hop."""
    frontier = clusters.get("frontier").resized(4096)

    def times(**changed):
        network = {**frontier.network.model_dump(), **changed}
        cluster = clusters.get({**frontier.model_dump(), "network": network})
        return np.array([float(cluster.collective(name, 1e6, 512, 8)) for name in OPERATIONS])

    usual = frontier.network.latency
    slow = times(latency_s=usual + 5e-3) - times()
    assert slow[OPERATIONS.index("all_gather")] == pytest.approx(511 * 5e-3, rel=0.01)
    assert slow[OPERATIONS.index("all_to_all")] == pytest.approx(5e-3 * 1.25, rel=0.01)
    assert 18 * 5e-3 < slow[OPERATIONS.index("all_reduce")] < 18 * 5e-3 * 1.3
    tree, dragonfly = times(shape="fat-tree"), times(shape="dragonfly")
    assert (tree > dragonfly).all()


def test_latency_of_a_level_counts():
    node = clusters.get("dgx-h100").resized(8)
    definition = node.model_dump()
    definition["levels"][0]["latency_s"] = node.levels[0].latency + 1e-3
    slow = clusters.get(definition)
    for operation, hops in (("all_gather", 7), ("all_to_all", 1), ("send_receive", 1)):
        size = 2 if operation == "send_receive" else 8
        more = slow.collective(operation, 1e3, size) - node.collective(operation, 1e3, size)
        assert more == pytest.approx(hops * 1e-3, rel=0.01)


def test_a_stated_latency_equal_to_the_calibrations_changes_nothing():
    for cluster in (each.resized(8 * each.devices_per_node) for each in clusters):
        definition = cluster.model_dump()
        definition["network"]["latency_s"] = cluster.network.latency
        for level, built in zip(definition["levels"], cluster.levels, strict=True):
            level["latency_s"] = built.latency
        stated, ranks = clusters.get(definition), cluster.devices
        for operation in OPERATIONS:
            assert cluster.collective(operation, 1e5, ranks) == stated.collective(operation, 1e5, ranks)


def test_rails_cross_the_spine_where_nobody_forwards():
    """Oversubscribed rails slow all-to-all of a few nodes on XGMI, not on NVLink."""
    for name, slower in (("dgx-h100", False), ("mi300x-8", True)):
        definition = clusters.get(name).resized(64).model_dump()
        definition["network"]["oversubscription"] = 4.0
        narrow = clusters.get(definition)
        times = [float(c.collective("all_to_all", 1e9, 64)) for c in (clusters.get(name).resized(64), narrow)]
        assert (times[1] > 2 * times[0]) == slower
