"""Host memory and SSDs of a node beside the memory of its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.reports.units import gibibytes, percent
from simulator.state.place import STATE_CLASSES, Tiers

if TYPE_CHECKING:
    from planner.training.prediction import Prediction

WORDS = {"host": "host memory", "nvme": "SSDs", "file_system": "file system"}
"""Tiers in words, each of one node."""


def tiers_of(prediction: Prediction, index: int) -> dict[str, dict[str, Any]]:
    """Bytes of a node on each tier that one plan uses, what the node has, and the parts."""
    memory, node = prediction.memory, prediction.setting.cluster.full_node
    drives = node.ssds
    capacity = {
        "host": float(node.host_bytes or 0.0),
        "nvme": float(drives.count * drives.bytes) if drives else 0.0,
        "file_system": None,
    }
    tiers = {}
    for tier, parts in memory.tiers.items():
        used = float(memory.on_tier(tier)[index])
        if used:
            there = capacity[tier]
            tiers[tier] = {
                "node_bytes": used,
                "capacity_bytes": there,
                "fits": there is None or used <= there,
                "parts_bytes": {name: float(part[:, index].max()) for name, part in parts.items()},
            }
    return tiers


def tier_rows(prediction: Prediction, index: int, columns: int) -> list[list[str]]:
    """Rows beneath the memory table: each tier of a node with what it has."""
    rows = []
    for tier, figures in tiers_of(prediction, index).items():
        there = figures["capacity_bytes"]
        size = gibibytes(figures["node_bytes"]) + (f" of {gibibytes(there)}" if there else "")
        rows.append([f"{WORDS[tier]} of a node", size, *[""] * (columns - 1)])
    return rows


def tier_shortage(prediction: Prediction, index: int) -> str:
    """Excess of a plan over a tier of its nodes, and the share of its largest part that would fit."""
    for tier, figures in tiers_of(prediction, index).items():
        if figures["fits"]:
            continue
        used, there = figures["node_bytes"], figures["capacity_bytes"]
        part, size = max(figures["parts_bytes"].items(), key=lambda item: item[1])
        place = prediction.plans.plan(index).place
        share = getattr(place.of(part), tier) if place else 1.0
        fitting = max(size - (used - there), 0.0) / size * share
        return (
            f"the plan does not fit: {WORDS[tier]} of a node must hold {gibibytes(used)} and has "
            f"{gibibytes(there)}, {gibibytes(used - there)} short; "
            f"place.{part}.{tier}: {fitting:.2f} would fit"
        )
    return ""


def placed(place: Tiers) -> str:
    """Shares of each class of state off the device, in words."""
    shares = [
        f"{percent(share, 0)} of {kind}, {WORDS[tier]}"
        for kind in STATE_CLASSES
        for tier in WORDS
        if isinstance(share := getattr(place.of(kind), tier), float) and share
    ]
    return "; ".join(shares)
