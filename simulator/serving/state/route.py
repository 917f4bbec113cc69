"""The route of KV between two replicas."""

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
        rates = [side.network.bandwidth * count / side.devices_per_node for side, count in sides]
        return cls(min(rates), max(side.network.latency for side, _ in sides))
