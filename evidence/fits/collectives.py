"""Predicted against measured collectives, by operation, system and fabric.

    python -m benchmarks.collectives FILE.csv[.gz] ...

A file has either the columns system, op, dtype, n_gpus, n_nodes, bytes, time_us, source, or the columns
system, op, n_gpus, n_nodes, bytes, value, unit (bus bandwidths and times as published);
evidence/fits/published_collectives.csv has those of p5 that EFA v2 is fitted to. Rows that do not
name a size, a group, a known system or its network are left out, and counted with the reason.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evidence.command import command
from hwmodels.cluster import Cluster, clusters

SYSTEMS = {
    # system as the files write it: (cluster of the catalogue, whether its network is the one measured)
    "a100-sxm": ("dgx-a100-80gb", True),
    "h100-sxm": ("dgx-h100", True),
    "h200-sxm": ("dgx-h200", True),
    "b200": ("dgx-b200", True),
    "gb200": ("gb200-nvl72", True),
    "l40s": ("l40s-8", True),
    "rtx-pro-6000-server": ("rtx-pro-6000-8", True),
    "mi300x": ("mi300x-8", True),
    "b200-p6-efa": ("aws-p6-b200", True),
    "vidur-a100_dgx": ("dgx-a100-80gb", False),
    "vidur-h100_dgx": ("dgx-h100", False),
    "LUMI MI250X GCD": ("lumi", True),
    "MI300X": ("mi300x-8", True),
    "MI350X": ("mi355x-8", True),
    "Azure ND A100 v4": ("azure-nd-a100-v4", True),
    "Azure ND H100 v5": ("azure-nd-h100-v5", True),
    "Azure ND H200 v5": ("dgx-h200", True),
    "Azure ND MI300X v5": ("mi300x-8", True),
    "Azure AKS A100 IB": ("azure-nd-a100-v4", True),
    "GCP a3-mega": ("gcp-a3-mega", True),
    "AWS p4d": ("aws-p4d", True),
    "AWS p5": ("aws-p5", True),
    "H100 8x NDR400": ("dgx-h100", True),
    "A100 Azure 2 nodes": ("azure-ndm-a100-v4", True),
    "H200 node": ("dgx-h200", True),
    "B200 node": ("aws-p6-b200", True),
    "A100 node": ("dgx-a100-80gb", True),
    "Perlmutter A100": ("perlmutter", True),
    "H100 node": ("dgx-h100", True),
}
OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "p2p": "send_receive",
    "send_recv": "send_receive",
}
BUS_FACTOR = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
SCALE = {"us": 1e-6, "ms": 1e-3}


@dataclass(frozen=True)
class MeasuredCollective:
    """One measured collective."""

    system: str
    cluster: str
    source: str
    operation: str
    size: int
    nodes: int
    bytes_: float
    seconds: float
    concurrent: bool
    in_switch: bool
    """Whether the library was free to reduce in the switch: floating point, and not turned off."""


def read_rows(paths: Iterable[Path], skipped: Counter[str]) -> Iterator[MeasuredCollective]:
    """Yield what can be predicted; count the rest by reason."""
    for path in paths:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            last = ""
            for raw in csv.DictReader(file):
                operation = raw["op"]
                if operation.startswith("same"):
                    operation = f"{last}; {operation}"
                else:
                    last = operation
                row = parse(raw, operation)
                if isinstance(row, MeasuredCollective):
                    yield row
                elif row:
                    skipped[row] += 1


def parse(raw: dict[str, str], text: str) -> MeasuredCollective | str:
    """Return a row, the reason why it is left out, or "" if it is no collective."""
    operation = next((ours for theirs, ours in OPERATIONS.items() if theirs in text), None)
    if operation is None:
        return ""
    systems = [name for name in SYSTEMS if raw["system"].startswith(name)]
    reason = (
        "system or network not named, or not in the catalogue" if not systems
        else "size or group not named" if not (raw["bytes"] and raw["n_gpus"])
        else "best of many repeats" if "best" in text
        else "includes waiting for stragglers" if "straggler" in text
        else "a bug report" if "mis-tuned" in raw["system"]
        else "another library" if "mscclpp" in raw["system"] or raw.get("source", "").startswith("aic:custom")
        else ""
    )  # fmt: skip
    if reason:
        return reason
    cluster, network_known = SYSTEMS[max(systems, key=len)]
    size, nodes, bytes_ = int(raw["n_gpus"]), int(raw["n_nodes"] or 1), float(raw["bytes"])
    if nodes > 1 and not network_known:
        return "network not named"
    seconds = measured_seconds(raw, text, operation, size, bytes_)
    if not 0 < seconds < np.inf:
        return "printed as zero"
    return MeasuredCollective(
        system=max(systems, key=len),
        cluster=cluster,
        source=raw["source"],
        operation=operation,
        size=size,
        nodes=nodes,
        bytes_=bytes_,
        seconds=seconds,
        # In LUMI's training logs all eight GCDs of a node communicate at once.
        concurrent="concurrent" in text or "training comms log" in raw["source"],
        in_switch="int" not in (raw.get("dtype") or "") and "NVLS off" not in text,
    )


def measured_seconds(raw: dict[str, str], text: str, operation: str, size: int, bytes_: float) -> float:
    """Return the time that a row states, or that follows from its bandwidth."""
    if "time_us" in raw:
        return float(raw["time_us"]) * 1e-6
    value, unit = float(raw["value"]), raw["unit"]
    if unit in SCALE:
        return value * SCALE[unit]
    if unit != "GB/s" or value == 0:
        return float("inf")
    factor = 1.0
    if operation in BUS_FACTOR and "algbw" not in text:
        factor = BUS_FACTOR[operation] * (size - 1) / size
    return bytes_ * factor / (value * 1e9)


def predict(row: MeasuredCollective, cluster: Cluster) -> float:
    """Return the predicted time of one row, s."""
    per_node = -(-row.size // row.nodes)
    job = cluster.resized(row.size if row.nodes == 1 else row.nodes * cluster.devices_per_node)
    stride = 1 if row.nodes == 1 else cluster.devices_per_node // per_node
    time = job.collective(
        row.operation, row.bytes_, row.size, stride, concurrent=row.concurrent, in_switch=row.in_switch
    )
    return float(time)


def lines_of(row: MeasuredCollective) -> Iterator[tuple[str, str, str, str]]:
    """Yield the lines of the table that a row counts in."""
    if row.nodes == 1:
        yield "inside a node", row.system, row.operation, f"{row.size} ranks"
        yield "inside a node", "all", "all", f"{row.size} ranks"
    else:
        network = clusters.get(row.cluster).network
        fabric = network.calibration or network.fabric
        yield "between nodes", fabric, row.operation, row.system
        yield "between nodes", fabric, "all", "all"


@command
def main(files: Sequence[Path]) -> None:
    skipped: Counter[str] = Counter()
    errors: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for row in read_rows(files, skipped):
        error = predict(row, clusters.get(row.cluster)) / row.seconds - 1
        for line in lines_of(row):
            errors[line].append(error)
    header = ("where", "system or fabric", "operation", "group or system")
    print("{:14} {:18} {:15} {:18}".format(*header), f"{'n':>5} {'median':>7} {'p90':>7} {'bias':>7}")
    for line in sorted(errors):
        relative = np.array(errors[line])
        median, p90 = np.quantile(np.abs(relative), [0.5, 0.9])
        names = "{:14} {:18} {:15} {:18}".format(*line)
        print(f"{names} {len(relative):5} {median:7.1%} {p90:7.1%} {np.median(relative):+7.1%}")
    for reason, count in skipped.most_common():
        print(f"left out: {count:5}  {reason}")
