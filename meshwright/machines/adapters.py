"""NICs and devices on the bus: ``ibstat`` and ``lspci``."""

from __future__ import annotations

import re
from collections import Counter

from meshwright.machines.report import Report

CARD = re.compile(r"(?m)^CA '([\w.-]+)'")
RATES = {"ConnectX-4": 100, "ConnectX-5": 100, "ConnectX-6": 200, "ConnectX-7": 400, "ConnectX-8": 800}
RATES |= {"BlueField-2": 200, "BlueField-3": 400}
"""Largest rate of a port in Gb/s (NVIDIA's product briefs of the adapters)."""
PCI = re.compile(
    r"(?m)^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]\s+"
    r"(3D controller|VGA compatible controller|Processing accelerators|Display controller"
    r"|Infiniband controller|Ethernet controller)(?: \[[0-9a-f]{4}\])?: (.+)$"
)


def read_ibstat(text: str, report: Report) -> None:
    """Active ports with their rate and link layer."""
    starts = list(CARD.finditer(text))
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        block = text[start.end() : end]
        active = re.search(r"(?m)^\s*State:\s*Active", block)
        rate = re.search(r"(?m)^\s*Rate:\s*(\d+(?:\.\d+)?)", block)
        layer = re.search(r"(?m)^\s*Link layer:\s*(\w+)", block)
        if active and rate:
            fabric = "roce" if layer and layer[1] == "Ethernet" else "infiniband"
            report.nics[start[1]] = (float(rate[1]), fabric)
        else:
            report.notes.append(f"{start[1]} is not active")
    if starts:
        report.kinds.append("ibstat")


def read_lspci(text: str, report: Report) -> None:
    """Devices by the name in brackets, and network adapters by product."""
    entries = PCI.findall(text)
    devices: Counter[str] = Counter()
    for kind, words in entries:
        words = re.sub(r"\s*\(rev \w+\)|\s*\[[0-9a-f]{4}:[0-9a-f]{4}\]", "", words)
        if "NVIDIA" in words and "controller" in kind and "ethernet" not in kind.lower():
            names = re.findall(r"\[([^\]]+)\]", words)
            devices[names[-1] if names else words.partition("Corporation ")[2]] += 1
        elif "Mellanox" in words or "NVIDIA" in words:
            product = next((name for name in RATES if name in words), "")
            if product:
                report.cards[product] = report.cards.get(product, 0) + 1
    if entries:
        report.kinds.append("lspci")
    if devices and not report.devices:
        report.devices = dict(devices)
