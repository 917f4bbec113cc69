"""Storage of weights or KV outside device memory, and its read rates."""

from __future__ import annotations

from typing import Literal

from hwmodels.cluster import Cluster

Place = Literal["host", "nvme", "remote"]


def read_rate(cluster: Cluster, devices: int, place: Place) -> float:
    """B/s at which all devices of a replica together read from storage outside their memory.

    Nodes without SSDs read over the network.
    """
    nodes = devices / cluster.devices_per_node
    if place == "host":
        return devices * cluster.device.kernels.calibration.host_copy.bandwidth
    drives = cluster.full_node.ssds
    if place == "nvme" and drives is not None and drives.count:
        return nodes * drives.count * drives.read_bytes_s
    return nodes * cluster.network.bandwidth
