"""The drawn and the closed-form routes say the same."""

import itertools

import networkx as nx
import pytest

from hwmodels.cluster import clusters
from hwmodels.errors import InputError
from hwmodels.topology import bisection_bandwidth, graph, links_of, ring_links


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
    drawn = graph(cluster)
    level_names = [level.name for level in cluster.levels]
    for one, other in itertools.product(range(0, cluster.devices, 5), range(cluster.devices)):
        links = links_of(cluster, one, other)
        ends = [("device", one), ("device", other)]
        # Devices do not forward, and nothing takes the network inside a domain.
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
    drawn = graph(cluster)
    half = cluster.devices // 2
    across = bisection_bandwidth(cluster)
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
        drawn = graph(cluster)
        nics = [node for node in drawn if node[:2] == ("nic", 0)]
        total = sum(
            drawn.edges[nic, leaf]["bandwidth"] for nic in nics for leaf in drawn[nic] if leaf[0] == "leaf"
        )
        assert total == pytest.approx(cluster.network.bandwidth)


def test_a_job_in_one_node_needs_no_network():
    drawn = graph(clusters.get("dgx-h100").resized(8))
    assert {data["kind"] for _, data in drawn.nodes(data=True)} == {"device", "nvlink"}


def test_a_ring_crosses_each_nic_once():
    cluster = clusters.get("dgx-h100").resized(32)
    links = ring_links(cluster, range(32))
    out_of_node = [link for link in links if link.target[0] == "nic" and link.source[0] == "device"]
    assert len(out_of_node) == 4
    assert ring_links(cluster, [5]) == []


def test_ranks_that_are_not_there():
    cluster = clusters.get("dgx-h100").resized(16)
    assert links_of(cluster, 3, 3) == []
    with pytest.raises(InputError, match="rank 16 is not among the 16"):
        links_of(cluster, 0, 16)
