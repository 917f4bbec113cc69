"""Storage of weights or KV outside device memory, and its read rates."""

from __future__ import annotations

from typing import Literal

from hwmodels.cluster import Cluster

Place = Literal["host", "nvme", "remote"]

NVME_BYTES_S = 6e9
"""Read rate of the local SSDs of a node: 144 GB in 24 s, 68 GB in 11 s (DeepFlow, arXiv 2501.14417, table of
cold starts)."""


def read_rate(cluster: Cluster, devices: int, place: Place) -> float:
    """B/s at which all devices of a replica together read from storage outside their memory."""
    nodes = devices / cluster.devices_per_node
    if place == "host":
        return devices * cluster.device.kernels.calibration.host_copy.bandwidth
    if place == "nvme":
        return nodes * NVME_BYTES_S
    return nodes * cluster.network.bandwidth
