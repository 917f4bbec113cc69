"""``nvidia-smi``: its table, ``-L``, ``-q`` and ``topo -m``."""

from __future__ import annotations

import re
from collections import Counter

from core.errors import InputError
from meshwright.machines.report import PCIE, Report

TOPOLOGY = re.compile(r"(?m)^\s*GPU0\b.*\bGPU1\b|^GPU0\s+X\b")
PATH = re.compile(r"NV\d{1,3}|X|" + "|".join(PCIE))
LISTED = re.compile(r"(?m)^GPU (\d+): (.+?) \(UUID")
PRODUCT = re.compile(r"(?m)^\s*Product Name\s*:\s*(.+?)\s*$")
MEMORY = re.compile(r"FB Memory Usage\s*\n\s*Total\s*:\s*(\d+) MiB")
LIMIT = re.compile(r"(?m)^\s*(?:Current|Default|Enforced) Power Limit\s*:\s*(\d+(?:\.\d+)?) W")
ROW = re.compile(
    r"(?m)^\|\s+(\d+)\s+(.+?)\s+(?:On|Off|N/A)\s+\|.*\n\|.*?/\s*(\d+)W?\s*\|\s*\d+MiB\s*/\s*(\d+)MiB"
)
MIB = 2.0**20


def read_topology(text: str, report: Report, where: str) -> None:
    """Paths between devices, and from each NIC to its nearest device.

    Raises:
        InputError: a row with fewer paths than devices, or a path that is unknown.
    """
    if TOPOLOGY.search(text) is None:
        return
    rows = [
        line.split()
        for line in text.splitlines()
        if re.match(r"\s*(GPU\d+|NIC\d+|(mlx|irdma|bnxt)\w+)\s", line)
    ]
    header = next((row for row in rows if row[0] == "GPU0" and "X" not in row[:3]), [])
    columns = [word for word in header if re.fullmatch(r"GPU\d+|NIC\d+|mlx\w+|irdma\w+|bnxt\w+", word)]
    body = [row for row in rows if row is not header]
    devices = [row[0] for row in body if row[0].startswith("GPU")]
    columns = columns or devices
    if not devices:
        return
    for row in body:
        cells = row[1 : 1 + len(columns)]
        if len(cells) < len(columns) or not all(PATH.fullmatch(cell) for cell in cells[: len(devices)]):
            raise InputError(
                f"paths of {row[0]} are not those of {len(columns)} columns", f"{where}: nvidia-smi topo"
            )
        paths = dict(zip(columns, cells, strict=False))
        if row[0].startswith("GPU"):
            for other in devices:
                pair = int(row[0][3:]), int(other[3:])
                if pair[0] < pair[1] and other in paths:
                    report.paths[pair] = paths[other]
        else:
            joined = [paths[device] for device in devices if paths.get(device) in PCIE]
            report.nic_paths[row[0]] = min(joined, key=PCIE.index) if joined else ""
    report.count = max(report.count, len(devices))
    report.kinds.append("nvidia-smi topo -m")


def read_devices(text: str, report: Report) -> None:
    """Names of devices, their memory and power limit."""
    if listed := LISTED.findall(text):
        report.devices = dict(Counter(name.strip() for _, name in listed))
        report.kinds.append("nvidia-smi -L")
    if named := PRODUCT.findall(text):
        report.devices = dict(Counter(named))
        report.kinds.append("nvidia-smi -q")
        if memory := MEMORY.search(text):
            report.memory_bytes = int(memory[1]) * MIB
        if limit := LIMIT.search(text):
            report.power_watts = float(limit[1])
    if rows := ROW.findall(text):
        names = Counter(name.strip() for _, name, _, _ in rows)
        report.devices = report.devices or dict(names)
        report.power_watts = report.power_watts or float(rows[0][2])
        report.memory_bytes = report.memory_bytes or int(rows[0][3]) * MIB
        report.kinds.append("nvidia-smi")
