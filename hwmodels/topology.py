"""The links of a cluster: as a graph to look at and check, and as closed-form routes for the engine.

Every device has one port on each level that it belongs to, leading to the switch (or the mesh) that joins
a block of that level. It reaches the network through its NIC and that NIC's leaf. Devices do not forward:
a route passes switches and NICs only. NICs that one device owns alone are drawn as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hwmodels.cluster import Cluster
from hwmodels.errors import InputError

if TYPE_CHECKING:
    import networkx as nx

Node = tuple[str | int, ...]
"""("device", rank), (level name, block), ("nic", node, index), ("leaf", index, rail) or ("spine",)."""


class Link(NamedTuple):
    """One direction of a link; both directions have this bandwidth at the same time."""

    source: Node
    target: Node
    level: str
    bandwidth: float
    """B/s."""
    latency_s: float


def links_of(cluster: Cluster, one: int, other: int) -> list[Link]:
    """Return the links from one rank to another, in order, in closed form; none from a rank to itself.

    Raises:
        InputError: a rank that the job does not have.
    """
    for rank in (one, other):
        if not 0 <= rank < cluster.devices:
            raise InputError(f"rank {rank} is not among the {cluster.devices} of {cluster.name}")
    if one == other:
        return []
    for level in cluster.levels:
        if one // level.devices == other // level.devices:
            return _hops(cluster, [("device", one), (level.name, one // level.devices), ("device", other)])
    up, down = _to_leaf(cluster, one), _to_leaf(cluster, other)
    joined = up[-1] == down[-1] or cluster.network.shape == "dragonfly"
    middle: list[Node] = [] if joined else [("spine",)]
    path = up + middle + down[::-1] if up[-1] != down[-1] else up + down[-2::-1]
    return _hops(cluster, path)


def ring_links(cluster: Cluster, ranks: Sequence[int]) -> list[Link]:
    """Return every link that a ring through these ranks crosses, in order.

    Raises:
        InputError: a rank that the job does not have.
    """
    around = [*ranks, ranks[0]] if len(ranks) > 1 else []
    return [link for one, other in pairwise(around) for link in links_of(cluster, one, other)]


def bisection_bandwidth(cluster: Cluster) -> dict[str, float]:
    """Return what one half of a level's block can send to the other half at once, B/s, by level.

    For the network it is what crosses between the first and the second half of the job's nodes.
    """
    across = {level.name: level.devices // 2 * level.bandwidth for level in cluster.levels}
    network, nodes = cluster.network, cluster.nodes_for(cluster.devices)
    half, below = nodes // 2, network.nodes_per_leaf
    if network.shape == "dragonfly" and nodes > below:
        pairs = half / below * (nodes - half) / below
        across["network"] = min(half * network.bandwidth, pairs * _between_groups(cluster))
    else:
        # Leaves that lie in one half whole send over their uplinks, the rest below its leaf.
        across["network"] = half // below * _leaf_uplink(cluster) + half % below * network.bandwidth
    return across


def graph(cluster: Cluster) -> nx.Graph:
    """Return devices, switches and NICs of the job as nodes, links as edges.

    Nodes carry ``kind``; edges carry ``level``, ``bandwidth`` (B/s each direction) and ``latency`` (s).
    """
    import networkx as nx

    drawn = nx.Graph(name=cluster.name)
    for rank in range(cluster.devices):
        for level in cluster.levels:
            _draw(drawn, _hops(cluster, [("device", rank), (level.name, rank // level.devices)]))
        if cluster.nodes_for(cluster.devices) > 1:
            _draw(drawn, _hops(cluster, _to_leaf(cluster, rank)))
    leaves = [node for node in drawn if node[0] == "leaf"]
    if cluster.network.shape == "dragonfly":
        for index, leaf in enumerate(leaves):
            for other in leaves[:index]:
                _draw(drawn, _hops(cluster, [leaf, other]))
    elif len(leaves) > 1:
        for leaf in leaves:
            _draw(drawn, _hops(cluster, [leaf, ("spine",)]))
    return drawn


def _draw(drawn: nx.Graph, links: list[Link]) -> None:
    for link in links:
        for node in (link.source, link.target):
            drawn.add_node(node, kind=node[0])
        drawn.add_edge(
            link.source, link.target, level=link.level, bandwidth=link.bandwidth, latency=link.latency_s
        )


def _to_leaf(cluster: Cluster, rank: int) -> list[Node]:
    """Return the way from a device through its NIC to its leaf switch."""
    network, node = cluster.network, rank // cluster.devices_per_node
    nic = rank % cluster.devices_per_node * _drawn_nics(cluster) // cluster.devices_per_node
    rail = nic if network.shape == "rails" else 0
    return [("device", rank), ("nic", node, nic), ("leaf", node // network.nodes_per_leaf, rail)]


def _drawn_nics(cluster: Cluster) -> int:
    return min(cluster.network.nics_per_node, cluster.devices_per_node)


def _leaf_uplink(cluster: Cluster) -> float:
    """Return the bandwidth out of all rails of one leaf or of one dragonfly group."""
    network = cluster.network
    return network.nodes_per_leaf * network.bandwidth / network.oversubscription


def _between_groups(cluster: Cluster) -> float:
    """Return the bandwidth between two groups of a dragonfly, which are all joined in pairs."""
    groups = -(-cluster.nodes_for(cluster.devices) // cluster.network.nodes_per_leaf)
    return _leaf_uplink(cluster) / max(groups - 1, 1)


def _hops(cluster: Cluster, path: list[Node]) -> list[Link]:
    return [_link(cluster, one, other) for one, other in pairwise(path)]


def _link(cluster: Cluster, one: Node, other: Node) -> Link:
    """Return the link between two neighbours of the graph.

    Half of a level's latency is spent on each side of its switch; a quarter of the network's on each of the
    four hops below leaves, and the same again on each hop between leaves.
    """
    network, kinds = cluster.network, {one[0], other[0]}
    for level in cluster.levels:
        if level.name in kinds:
            return Link(one, other, level.name, level.bandwidth, level.latency_s / 2)
    if "nic" in kinds:
        bandwidth = network.bandwidth / _drawn_nics(cluster)
    elif "spine" in kinds:
        rails = _drawn_nics(cluster) if network.shape == "rails" else 1
        bandwidth = _leaf_uplink(cluster) / rails
    else:
        bandwidth = _between_groups(cluster)
    return Link(one, other, "network", bandwidth, network.latency_s / 4)
