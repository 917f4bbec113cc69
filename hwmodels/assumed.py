"""Defaults of cluster files: optional keys, and the values assumed for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.sources import USER
from hwmodels.node import FileSystem, Node, SolidStates

NODES_PER_LEAF = 16
"""Nodes below one leaf switch, as in half of the catalogue's clusters."""

HOST_SHARE = 0.43
"""Power of a node's hosts over the limits of its devices: median of the catalogue's clusters."""

NVLINKS = ((300e9, "nvlink3"), (450e9, "nvlink4"))
"""Highest bandwidth of a device's NVLinks and the constants measured on them; faster ones are NVLink 5."""

HOST_BYTES_PER_DEVICE = 256e9
"""Host memory over devices of a DGX A100 and a DGX H100 (2 TB each, data sheets)."""

DEVICES_PER_PCIE_ROOT = 2
"""Devices behind one PCIe switch of a DGX A100 (white paper, block diagram)."""

SOLID_STATES = SolidStates(count=4, bytes=3.84e12, write_bytes_s=1.25e9, read_bytes_s=1.5e9)
"""Four SSDs. Write: 5 GB/s of four Gen4 drives from device memory (DeepNVMe, June 2025). Read: 6 GB/s of a
node's drives, 144 GB in 24 s and 68 GB in 11 s (DeepFlow, arXiv 2501.14417, table of cold starts)."""

FILE_SYSTEM_PER_NODE = {"write_bytes_s": 0.625e9, "read_bytes_s": 1.25e9}
"""Rates of the shared file system over nodes: 20 and 40 GB/s of a unit of 32 nodes, the standard level of
NVIDIA's DGX SuperPOD reference architecture (H100)."""


def link_calibration(level: Mapping[str, Any]) -> str:
    """Name of the constants measured on links like those of a level; arbitrary where kind or bandwidth are
    invalid."""
    kind, bandwidth = level.get("kind"), level.get("bandwidth")
    if kind in ("nvlink", "nvswitch"):
        rate = bandwidth if isinstance(bandwidth, int | float) else 0.0
        return next((name for highest, name in NVLINKS if rate <= highest), "nvlink5")
    if kind == "infinity-fabric":
        return "xgmi-mesh" if level.get("mesh") else "xgmi-node"
    return "xgmi-mesh" if kind == "ethernet" else "pcie4"


def with_assumptions(data: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping of a cluster with its defaults filled in and listed under ``assumed``.

    The power of the hosts follows from the device, which is not known here; it is only listed.
    """
    stated = data.get("assumed", [])
    if not isinstance(stated, list):
        return dict(data)  # reported by its own field
    filled, assumed = dict(data), list(stated)
    levels = data.get("levels")
    if isinstance(levels, list):
        filled["levels"] = [_level(level, assumed) for level in levels]
    network = data.get("network")
    if isinstance(network, Mapping) and "nodes_per_leaf" not in network:
        filled["network"] = {**network, "nodes_per_leaf": NODES_PER_LEAF}
        assumed.append(f"network: {NODES_PER_LEAF} nodes below a leaf switch")
    if "host_watts" not in data:
        assumed.append(f"host_watts: {HOST_SHARE:g} of the devices' power limits")
    if "sources" not in data:
        filled["sources"] = {}
    return {**filled, "assumed": assumed} if assumed else filled


def _level(level: Any, assumed: list[str]) -> Any:
    if not isinstance(level, Mapping) or "calibration" in level:
        return level
    name = link_calibration(level)
    assumed.append(f"level {level.get('name')}: links as {name}")
    return {**level, "calibration": name}


def node_with_assumptions(node: Node | None, devices: int, copy_bytes_s: float) -> tuple[Node, list[str]]:
    """A node with defaults for the keys that its file leaves out, and what they assume.

    The speed of its CPUs has no default: it stays None where the file leaves it out.

    Args:
        node: what the cluster's file states; None: nothing.
        devices: of a node.
        copy_bytes_s: rate of copies between one device and its host.
    """
    filled, assumed = dict(node or Node()), []
    if filled["host_bytes"] is None:
        filled["host_bytes"] = devices * HOST_BYTES_PER_DEVICE
        assumed.append(f"node: {HOST_BYTES_PER_DEVICE / 1e9:g} GB of host memory per device")
    if filled["pcie_roots"] is None:
        filled["pcie_roots"] = max(devices // DEVICES_PER_PCIE_ROOT, 1)
        assumed.append(f"node: {DEVICES_PER_PCIE_ROOT} devices behind a PCIe root")
    if filled["host_copy_bytes_s"] is None:
        filled["host_copy_bytes_s"] = min(filled["pcie_roots"], devices) * copy_bytes_s
        assumed.append(f"node: copies to the host at {copy_bytes_s / 1e9:g} GB/s per PCIe root")
    if filled["ssds"] is None:
        filled["ssds"] = SOLID_STATES
        drives = (
            f"{SOLID_STATES.write_bytes_s / 1e9:g} GB/s write, {SOLID_STATES.read_bytes_s / 1e9:g} GB/s read"
        )
        assumed.append(f"node: {SOLID_STATES.count} SSDs of {drives} each")
    return Node.model_construct(**filled), assumed


def file_system_with_assumptions(
    file_system: FileSystem | None, nodes: int, nic_bytes_s: float
) -> tuple[FileSystem, list[str]]:
    """A file system with defaults for what its file leaves out, and what they assume.

    Args:
        file_system: what the cluster's file states; None: nothing.
        nodes: of the whole cluster.
        nic_bytes_s: rate of a node's NICs, the default limit of one client.
    """
    assumed = []
    if file_system is None:
        file_system = FileSystem(**{name: nodes * rate for name, rate in FILE_SYSTEM_PER_NODE.items()})
        rates = ", ".join(f"{rate / 1e9:g} GB/s {name[:-8]}" for name, rate in FILE_SYSTEM_PER_NODE.items())
        assumed.append(f"file_system: {rates} per node")
    filled = dict(file_system)
    for name in FILE_SYSTEM_PER_NODE:
        if filled[f"client_{name}"] is None:
            filled[f"client_{name}"] = min(nic_bytes_s, filled[name])
    return FileSystem.model_construct(**filled), assumed


def assumed_figures(name: str, part: Node | FileSystem) -> str:
    """The figures that a cluster's file states and calls assumed, in one line; empty where there are none.

    Args:
        name: key of the part in the file.
        part: what the file states.
    """
    keys = [key for key, origin in part.origins.items() if origin.kind == "assumed" and origin.source != USER]
    return f"{name}: {', '.join(keys)}, assumed in the cluster's file" if keys else ""
