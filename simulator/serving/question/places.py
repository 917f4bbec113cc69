"""Storage of weights or KV outside device memory, and its read rates."""

from __future__ import annotations

from typing import Literal

from hwmodels.cluster import Cluster

Place = Literal["host", "nvme", "remote"]

NODE_BYTES_S = 6e9
"""Most that a node reads from its SSDs into device memory, B/s: 144 GB in 24 s, 68 GB in 11 s (DeepFlow,
arXiv 2501.14417, table of cold starts). Raw rates of the drives are higher."""


def read_rate(cluster: Cluster, devices: int, place: Place) -> float:
    """B/s at which all devices of a replica together read from storage outside their memory.

    SSDs are read at their own rate, up to `NODE_BYTES_S`. Nodes without SSDs read over the network.
    """
    nodes = devices / cluster.devices_per_node
    if place == "host":
        return devices * cluster.device.kernels.calibration.host_copy.bandwidth
    drives = cluster.full_node.ssds
    if place == "nvme" and drives is not None and drives.count:
        return nodes * min(drives.count * drives.read_bytes_s, NODE_BYTES_S)
    return nodes * cluster.network.bandwidth
