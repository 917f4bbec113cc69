"""Defaults of cluster files: optional keys, and the values assumed for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NODES_PER_LEAF = 16
"""Nodes below one leaf switch, as in half of the catalogue's clusters."""

HOST_SHARE = 0.43
"""Power of a node's hosts over the limits of its devices: median of the catalogue's clusters."""

NVLINKS = ((300e9, "nvlink3"), (450e9, "nvlink4"))
"""Highest bandwidth of a device's NVLinks and the constants measured on them; faster ones are NVLink 5."""


def link_calibration(level: Mapping[str, Any]) -> str:
    """Name of the constants measured on links like those of a level; arbitrary where kind or bandwidth are
    invalid."""
    kind, bandwidth = level.get("kind"), level.get("bandwidth")
    if kind in ("nvlink", "nvswitch"):
        rate = bandwidth if isinstance(bandwidth, int | float) else 0.0
        return next((name for most, name in NVLINKS if rate <= most), "nvlink5")
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
