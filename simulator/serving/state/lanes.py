"""Lanes of a fleet: host links of replicas, NICs and SSDs of nodes, each way."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Literal

from hwmodels.cluster import Cluster
from simulator.serving.question.places import Place
from simulator.serving.state.links import Crossed, SharedLane, SharedLinks
from simulator.serving.state.route import Route

Way = Literal["in", "out"]
"""Into device memory, or out of it."""


class Lanes:
    """All lanes of a run, made when they are first used."""

    def __init__(self) -> None:
        self.links = SharedLinks()
        self._lanes: dict[tuple[str, str, int, Way], SharedLane] = {}

    def __iter__(self) -> Iterator[SharedLane]:
        return iter(self._lanes.values())

    def route(self, cluster: Cluster, rank: int, devices: int, place: Place, way: Way) -> Crossed:
        """Lanes that state crosses between a replica's devices and a place.

        Args:
            cluster: of the replica.
            rank: of its first device.
            devices: of the replica, or of one attention rank.
            place: where the state lies; nodes without SSDs use the network.
            way: into or out of device memory.
        """
        rates = cluster.rates
        host = self._lane("host link", cluster, rank, way, rates.copies(devices))
        if place == "host":
            return (host,)
        if place == "nvme" and rates.ssd_read:
            rate = rates.ssd_read if way == "in" else rates.ssd_write
            return host, self._of_nodes("SSDs", cluster, rank, devices, way, rate)
        return (self.nics(cluster, rank, devices, way),)

    def nics(self, cluster: Cluster, rank: int, devices: int, way: Way) -> SharedLane:
        """The NICs of the nodes of a replica."""
        return self._of_nodes("NICs", cluster, rank, devices, way, cluster.rates.nics)

    def between(self, source: tuple[Cluster, int, int], target: tuple[Cluster, int, int]) -> Crossed:
        """Lanes from one replica to another, each given as cluster, first rank and devices.

        On one node the slowest link between them, whole; else the NICs of both nodes.
        """
        (cluster, rank, devices), (there, to, others) = source, target
        node = cluster.devices_per_node
        if cluster.name != there.name or rank // node != to // node:
            return self.nics(cluster, rank, devices, "out"), self.nics(there, to, others, "in")
        # A scaler may add replicas behind the devices that the question began with.
        wide = cluster if max(rank, to) < cluster.devices else cluster.resized(max(rank, to) + 1)
        rate = Route.between(wide, rank, devices, to, others).bandwidth
        return self._lane("peer links", cluster, rank, "out", rate), self._lane(
            "peer links", cluster, to, "in", rate
        )

    def _of_nodes(
        self, name: str, cluster: Cluster, rank: int, devices: int, way: Way, rate: float
    ) -> SharedLane:
        """A lane that all replicas of a node share; a replica of several whole nodes has theirs together."""
        nodes = max(ceil(devices / cluster.devices_per_node), 1)
        return self._lane(name, cluster, rank // cluster.devices_per_node, way, nodes * rate)

    def _lane(self, name: str, cluster: Cluster, number: int, way: Way, rate: float) -> SharedLane:
        key = name, cluster.name, number, way
        if key not in self._lanes:
            self._lanes[key] = SharedLane(f"{name} {way}", rate)
        return self._lanes[key]
