"""KV transfers from prefill to decode replicas, over the cluster's links.

A prompt's KV is sent layer by layer, overlapping the next layer, or as a whole after the prompt.
Each pair of devices (rank i of one replica, rank i of the other) has its own route; routes through NICs share
those of their nodes. A replica sends and receives one prompt at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwmodels.cluster import Cluster
from hwmodels.topology import NETWORK


@dataclass(frozen=True)
class Route:
    """The route between two replicas."""

    bandwidth: float
    """Bandwidth over all pairs of devices, B/s."""
    latency_s: float

    @classmethod
    def between(cls, cluster: Cluster, first: int, devices: int, other: int, others: int) -> Route:
        """The route from ``devices`` ranks from ``first`` on to ``others`` ranks from ``other`` on."""
        pairs = min(devices, others)
        links = cluster.topology.route(first, other)
        bandwidth = pairs * min(link.bandwidth for link in links)
        if any(link.level == NETWORK for link in links):
            nodes = min(cluster.nodes_for(devices), cluster.nodes_for(others))
            bandwidth = min(bandwidth, nodes * cluster.network.bandwidth)
        return cls(bandwidth, sum(link.latency_s for link in links))

    @classmethod
    def across(cls, first: Cluster, devices: int, other: Cluster, others: int) -> Route:
        """The route between replicas on two clusters: through their NICs, with a full network between."""
        sides = ((first, devices), (other, others))
        rates = [one.network.bandwidth * count / one.devices_per_node for one, count in sides]
        return cls(min(rates), max(one.network.latency for one, _ in sides))


class Transfers:
    """End times of KV transfers, s; a replica's link is busy until its transfer ends.

    Args:
        layers: layers of the model.
        layerwise: send each layer when it is computed.
    """

    def __init__(self, layers: int, layerwise: bool) -> None:
        self.layers, self.layerwise = layers, layerwise
        self._free_s: dict[int, float] = {}
        self.bytes = 0.0

    def end(
        self, route: Route, bytes_: float, started: float, ended: float, source: int, target: int
    ) -> float:
        """When a prompt's KV has arrived.

        Args:
            route: route between the replicas.
            bytes_: size of the KV, B.
            started, ended: start and end of the prompt's computation, s.
            source, target: indices of the prefill and the decode replica.
        """
        whole = bytes_ / route.bandwidth
        earliest, last = ended, whole
        if self.layerwise:
            last = whole / self.layers
            earliest = ended - (ended - started) * (1 - 1 / self.layers)
        begin = max(earliest, self._free_s.get(source, 0.0), self._free_s.get(target, 0.0))
        end = max(begin + whole, ended + last)
        self._free_s[source] = self._free_s[target] = end
        self.bytes += bytes_
        return end + route.latency_s
