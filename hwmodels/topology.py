"""The topology of a cluster: routes between ranks, latency by hops, and the links that flows share.

Every device has one port on each level that it belongs to, leading to the switch (or the mesh) that joins a
block of that level. It reaches the network through its NIC and the NIC's leaf. NICs owned by one device
alone form one node of the graph. Routes of pairs are exact (``route``; tests compare them with the graph).
``leaves`` and ``uplink_load`` describe whole process groups, as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError, UnknownNameError
from core.records import record
from hwmodels.collectives.group import Group
from hwmodels.levels import Level, Network

if TYPE_CHECKING:
    import networkx as nx

Place = tuple[str | int, ...]
"""("device", rank), (level name, block), ("nic", node, index), ("leaf", index, rail) or ("spine",)."""

NETWORK = "network"
"""Name of the links between nodes or racks, beside the names of levels."""

PAIRED = ("send_receive", "chain", "all_to_all")
"""Operations between all pairs of ranks; rings and trees enter and leave a node through NICs of one rail."""


class Link(NamedTuple):
    """One direction of a link; both directions have this bandwidth at the same time."""

    source: Place
    target: Place
    level: str
    bandwidth: float
    """B/s."""
    latency_s: float


@record()
class Topology:
    """The levels of links inside nodes or racks, and the network between them, of one job."""

    name: str
    levels: Sequence[Level]
    network: Network
    devices: int
    """Ranks of the job."""
    devices_per_node: int
    nodes: int
    """Nodes of the whole system; dragonfly groups are counted over all of them."""

    # ---- process groups, as arrays ---------------------------------------------------------------------

    @property
    def forwards(self) -> bool:
        """Whether devices of a node pass data on to the NIC on the receiver's rail (PXN).

        NCCL does since 2.12, over NVLink only; RCCL has it switched off (src/graph/paths.cc of both).
        """
        return self.levels[-1].kind in ("nvlink", "nvswitch")

    @property
    def crossing_s(self) -> float:
        """Latency that a hop between leaves adds, s: two links (to a spine and back), or one link between
        groups of a dragonfly. A link takes a quarter of the network's latency."""
        return (1 if self.network.shape == "dragonfly" else 2) * self.network.latency / 4

    def forwarding_s(self, operation: str, group: Group) -> NDArray[np.float64]:
        """Latency of the hop inside the node that brings data to the receiver's rail, shape (groups,)."""
        forwarded = self._changes_rail(operation, group) & self.forwards
        return np.where(forwarded, self.levels[-1].latency, 0.0)

    def leaves(self, operation: str, group: Group) -> NDArray[np.float64]:
        """Return the number of leaves (dragonfly: groups of nodes) of a process group, shape (groups,).

        Without forwarding to the receiver's rail, pairs on two rails meet at the spine.
        """
        below, span = self._below, group.size * group.stride
        spanned = np.where(group.stride >= below, group.size, -(-span // below))
        leaves = np.where(span > below, np.minimum(np.maximum(spanned, 2), group.size), 1)
        over_spine = self._changes_rail(operation, group) & (not self.forwards)
        return np.where(over_spine, np.maximum(leaves, 2), leaves).astype(np.float64)

    def uplink_load(self, operation: str, group: Group) -> NDArray[np.float64]:
        """Return the demand on a leaf's uplinks over their capacity; at least 1.

        All groups of the kind communicate at once. Between groups of a dragonfly, adaptive routing carries
        traffic between neighbours over a third group, so each byte crosses two global links; all-to-all loads
        them evenly without it (Kim, Dally, Scott, Abts 2008, section 4).
        """
        below, network = self._below, self.network
        span = group.size * group.stride
        if operation == "all_to_all":
            leaving = 1 - below / np.maximum(span, below)
        else:
            leaving = np.where(span > below, np.maximum(group.stride, self.devices_per_node) / below, 0.0)
        if not self.forwards:
            other_rails = 1 - 1 / self._nics if operation == "all_to_all" else 1.0
            over_spine = np.where(self._changes_rail(operation, group), other_rails, 0.0)
            leaving = leaving + (1 - np.minimum(leaving, 1)) * over_spine
        crossings = 1.0
        if network.shape == "dragonfly" and operation != "all_to_all":
            crossings = min(2.0, max(self._groups - 1, 1))
        return np.maximum(network.oversubscription * crossings * np.minimum(leaving, 1), 1)

    def _changes_rail(self, operation: str, group: Group) -> NDArray[np.bool_]:
        """Whether groups have pairs of ranks on different rails of different nodes, shape (groups,)."""
        if self.network.shape != "rails" or operation not in PAIRED or self._nics == 1:
            return np.zeros(group.size.shape, bool)
        return (group.stride % self.devices_per_node != 0) & (group.domains > 1)

    @property
    def _below(self) -> int:
        """Devices below one leaf, or in one group of a dragonfly."""
        return self.network.nodes_per_leaf * self.devices_per_node

    @property
    def _groups(self) -> int:
        """Groups of nodes in the whole system."""
        return -(-self.nodes // self.network.nodes_per_leaf)

    # ---- pairs of ranks: the actual links ----------------------------------------------------------------

    def route(self, sender: int, receiver: int) -> list[Link]:
        """Return the links from one rank to another, in order; none from a rank to itself.

        Raises:
            InputError: a rank that the job does not have.
        """
        for rank in (sender, receiver):
            if not 0 <= rank < self.devices:
                raise InputError(f"rank {rank} is not among the {self.devices} of {self.name}")
        if sender == receiver:
            return []
        for level in self.levels:
            if sender // level.devices == receiver // level.devices:
                return self._hops(
                    [("device", sender), (level.name, sender // level.devices), ("device", receiver)]
                )
        start: list[Place] = []
        if self.network.shape == "rails" and self.forwards and self._rail(sender) != self._rail(receiver):
            # Forwarded inside the node to the device that shares the receiver's rail.
            level, peer = (
                self.levels[-1],
                sender - sender % self.devices_per_node + receiver % self.devices_per_node,
            )
            start = [("device", sender), (level.name, sender // level.devices)]
            sender = peer
        up, down = self._to_leaf(sender), self._to_leaf(receiver)
        direct = self.network.shape == "dragonfly"
        if up[-1] == down[-1]:
            down = down[:-1]
        middle: list[Place] = [] if direct or len(down) < len(up) else [("spine",)]
        return self._hops([*start, *up, *middle, *down[::-1]])

    def port(self, rank: int, level: str) -> Link:
        """Return the link from a rank into a level (its port) or into the "network" (its NIC).

        Raises:
            UnknownNameError: no such level.
        """
        if level == NETWORK:
            _, nic, leaf = self._to_leaf(rank)
            return self._link(nic, leaf)
        widths = {level.name: level.devices for level in self.levels}
        if level not in widths:
            raise UnknownNameError("level", level, [*widths, NETWORK])
        return self._link(("device", rank), (level, rank // widths[level]))

    def ring(self, ranks: Sequence[int]) -> list[Link]:
        """Return every link that a ring through these ranks crosses, in order.

        Raises:
            InputError: a rank that the job does not have.
        """
        around = [*ranks, ranks[0]] if len(ranks) > 1 else []
        return [link for sender, receiver in pairwise(around) for link in self.route(sender, receiver)]

    def bisection_bandwidth(self) -> dict[str, float]:
        """Return the bisection bandwidth of a block of each level, B/s.

        For the network: between the first and the second half of the job's nodes.
        """
        across = {level.name: level.devices // 2 * level.bandwidth for level in self.levels}
        network, nodes = self.network, self._job_nodes
        half, below = nodes // 2, network.nodes_per_leaf
        if network.shape == "dragonfly" and nodes > below:
            pairs = half / below * (nodes - half) / below
            across["network"] = min(half * network.bandwidth, pairs * self._between_groups)
        else:
            # Leaves entirely in one half send over their uplinks; nodes of a split leaf send below it.
            across["network"] = half // below * self._leaf_uplink + half % below * network.bandwidth
        return across

    def graph(self) -> nx.Graph:
        """Return devices, switches and NICs of the job as nodes, links as edges.

        Nodes carry ``kind``; edges carry ``level``, ``bandwidth`` (B/s each direction) and ``latency`` (s).
        """
        import networkx as nx

        drawn = nx.Graph(name=self.name)
        for rank in range(self.devices):
            for level in self.levels:
                _draw(drawn, self._hops([("device", rank), (level.name, rank // level.devices)]))
            if self._job_nodes > 1:
                _draw(drawn, self._hops(self._to_leaf(rank)))
        leaves = [node for node in drawn if node[0] == "leaf"]
        if self.network.shape == "dragonfly":
            for index, leaf in enumerate(leaves):
                for other in leaves[:index]:
                    _draw(drawn, self._hops([leaf, other]))
        elif len(leaves) > 1:
            for leaf in leaves:
                _draw(drawn, self._hops([leaf, ("spine",)]))
        return drawn

    def _to_leaf(self, rank: int) -> list[Place]:
        """Return the path from a device through its NIC to its leaf switch."""
        node, nic = rank // self.devices_per_node, self._rail(rank)
        rail = nic if self.network.shape == "rails" else 0
        return [("device", rank), ("nic", node, nic), ("leaf", node // self.network.nodes_per_leaf, rail)]

    def _rail(self, rank: int) -> int:
        return rank % self.devices_per_node * self._nics // self.devices_per_node

    @property
    def _nics(self) -> int:
        """NICs of a node; the NICs of one device count as one."""
        return min(self.network.nics_per_node, self.devices_per_node)

    @property
    def _job_nodes(self) -> int:
        return -(-self.devices // self.devices_per_node)

    @property
    def _leaf_uplink(self) -> float:
        """Bandwidth out of all rails of one leaf or of one dragonfly group."""
        return self.network.nodes_per_leaf * self.network.bandwidth / self.network.oversubscription

    @property
    def _between_groups(self) -> float:
        """Bandwidth between two groups of a dragonfly; all pairs of groups are linked."""
        groups = -(-self._job_nodes // self.network.nodes_per_leaf)
        return self._leaf_uplink / max(groups - 1, 1)

    def _hops(self, path: list[Place]) -> list[Link]:
        return [self._link(place, other) for place, other in pairwise(path)]

    def _link(self, place: Place, other: Place) -> Link:
        """Return the link between two neighbours of the graph.

        Each side of a switch takes half of its level's latency; each of the four hops below leaves, and each
        hop between leaves, takes a quarter of the network's.
        """
        network, kinds = self.network, {place[0], other[0]}
        for level in self.levels:
            if level.name in kinds:
                return Link(place, other, level.name, level.bandwidth, level.latency / 2)
        if "nic" in kinds:
            bandwidth = network.bandwidth / self._nics
        elif "spine" in kinds:
            rails = self._nics if network.shape == "rails" else 1
            bandwidth = self._leaf_uplink / rails
        else:
            bandwidth = self._between_groups
        return Link(place, other, "network", bandwidth, network.latency / 4)


def _draw(drawn: nx.Graph, links: list[Link]) -> None:
    for link in links:
        for node in (link.source, link.target):
            drawn.add_node(node, kind=node[0])
        drawn.add_edge(
            link.source, link.target, level=link.level, bandwidth=link.bandwidth, latency=link.latency_s
        )
