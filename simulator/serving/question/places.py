"""Storage of weights or KV outside device memory, and its read rates."""

from __future__ import annotations

from typing import Literal

from hwmodels.cluster import Cluster

Place = Literal["host", "nvme", "remote"]


def read_rate(cluster: Cluster, devices: int, place: Place) -> float:
    """B/s at which all devices of a replica together read KV from outside their memory.

    They have their share of their nodes' SSDs. Nodes without SSDs read over the network.
    """
    rates = cluster.rates
    if place == "host":
        return rates.copies(devices)
    if place == "nvme" and rates.ssd_read:
        return devices / cluster.devices_per_node * rates.ssd_read
    return rates.sends(devices)
