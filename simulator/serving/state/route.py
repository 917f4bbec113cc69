"""The route of KV between two replicas."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodels.cluster import Cluster
from hwmodels.topology import NETWORK


@dataclass(frozen=True)
class Route:
    """The route between two replicas."""

    bandwidth: float
    """Payload over all pairs of devices, B/s."""
    latency_s: float

    @classmethod
    def between(cls, cluster: Cluster, first: int, devices: int, other: int, others: int) -> Route:
        """The route from ``devices`` ranks from ``first`` on to ``others`` ranks from ``other`` on."""
        links = cluster.topology.route(first, other)
        crossed = {link.level for link in links}
        inside = (index for index, level in enumerate(cluster.levels) if level.name in crossed)
        level = None if NETWORK in crossed else next(inside)
        rate = cluster.rates.sends(min(devices, others), level)
        return cls(rate, sum(link.latency_s for link in links))

    @classmethod
    def of(cls, here: Cluster, there: Cluster, first: int, devices: int, other: int, others: int) -> Route:
        """The route between ranks of two pools: over the links of one cluster, or through the NICs of two."""
        if here.name == there.name and max(first + devices, other + others) <= here.devices:
            return cls.between(here, first, devices, other, others)
        return cls.across(here, devices, there, others)

    @classmethod
    def across(cls, first: Cluster, devices: int, other: Cluster, others: int) -> Route:
        """The route between replicas on two clusters: through their NICs, with a full network between."""
        rate = min(first.rates.sends(devices), other.rates.sends(others))
        return cls(rate, max(first.network.latency, other.network.latency))
