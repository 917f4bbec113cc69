"""What reports of machines say, before a cluster is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Paths between devices that run over PCIe, the nearest first (nvidia-smi topo, legend)."""


@dataclass
class Report:
    """Facts of one node, or of a list of nodes; what no report says is empty or 0."""

    devices: dict[str, int] = field(default_factory=dict)
    """Devices of a node by the name that a report gives them."""
    count: int = 0
    """Devices of a node, from a report without names."""
    memory_bytes: float = 0.0
    """Of one device."""
    power_watts: float = 0.0
    """Limit of one device."""
    paths: dict[tuple[int, int], str] = field(default_factory=dict)
    """Paths between devices: NV18, PIX, SYS."""
    nic_paths: dict[str, str] = field(default_factory=dict)
    """Nearest path from a device, by NIC."""
    nics: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Gb/s and fabric by port."""
    cards: dict[str, int] = field(default_factory=dict)
    """NICs by product, whose rate is the product's largest."""
    nodes: int = 0
    host_bytes: float = 0.0
    kinds: list[str] = field(default_factory=list)
    """Reports that were read."""
    notes: list[str] = field(default_factory=list)
