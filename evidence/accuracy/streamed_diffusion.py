"""Measured batches of diffusion models whose weights are sharded or come from the host, and predictions.

    python -m benchmarks.streamed_diffusion

Rows: vLLM's blog of 2026-07-30 (Cosmos3-Super, 124 GB, on four B300) and sgl-project/sglang pull request
16150 (Qwen-Image; 80 GB, of which only an H100's link is quick enough). Nothing is fitted on them.
"""

from __future__ import annotations

import csv
from pathlib import Path

from evidence.accuracy.errors import Errors
from evidence.command import command
from simulator.diffusion.request import DiffusionRequest, predict_request
from simulator.diffusion.scenario import make_diffusion

ROWS = Path(__file__).with_suffix(".csv")
LAYOUTS = {
    "sharded": {"ulysses": 4, "sharded": True},
    "sharded host": {"data": 4, "sharded": True, "offload": "layers"},
    "sharded patches host": {"ulysses": 4, "sharded": True, "offload": "layers"},
    "whole host": {"data": 4, "offload": "layers"},
    "patches host": {"ulysses": 4, "offload": "layers"},
    "host": {"offload": "layers"},
}
"""Layouts of the rows: where weights lie, and how four devices share the work."""


def measured_rows() -> list[dict[str, str]]:
    """Rows as published."""
    with ROWS.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def predicted(row: dict[str, str]) -> DiffusionRequest:
    """A row's batch."""
    sizes = {name: int(row[name]) for name in ("height", "width", "frames", "steps", "batch")}
    scenario = {
        "model": row["model"],
        "cluster": row["cluster"],
        "library": row["library"],
        "workload": {"kind": "diffusion", **sizes},
        "layout": LAYOUTS[row["layout"]],
    }
    return predict_request(make_diffusion(scenario, row["source"], Path()))


@command
def main() -> None:
    times, memory = Errors(), Errors()
    print("| model | pixels, frames | weights, batch | measured s | predicted | GiB | predicted |")
    print("|---|---|---|---|---|---|---|")
    for row in measured_rows():
        request = predicted(row)
        latency, used = request.times.latency_s, sum(request.memory_bytes.values()) / 2**30
        size = f"{row['width']} x {row['height']}, {row['frames']}"
        cells = (row["model"], size, f"{row['layout']}, {row['batch']}", row["latency_s"], f"{latency:.2f}")
        print("| " + " | ".join((*cells, row["memory_gib"], f"{used:.1f}")) + " |")
        times.add(latency, float(row["latency_s"]), "all", row["model"], row["layout"])
        if row["memory_gib"]:
            memory.add(used, float(row["memory_gib"]), "all", row["layout"])
    print("\n".join((*times.lines("latency, %"), "", *memory.lines("memory, %"))))
