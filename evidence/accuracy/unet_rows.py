"""Images of U-Nets that others measured, and predictions; no constant of `xdit` is fitted on them.

    python -m benchmarks.unet_rows

The time of convolutions in an engine (`simulator/diffusion/libraries/tensorrt.yaml`) is chosen on the rows of
A100; those of H100 and of RTX 4090 have none but the calibrated kernels' times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from evidence.accuracy.errors import Figures, compared
from evidence.command import command
from simulator.diffusion.request import predict_request
from simulator.diffusion.scenario import make_diffusion

ROWS = Path(__file__).with_name("unet_rows.yaml")


def measured_rows() -> list[dict[str, Any]]:
    """Rows with a source, what ran, and the seconds of an image (`seconds`) or of a step (`step_s`)."""
    return yaml.safe_load(ROWS.read_text(encoding="utf-8"))["rows"]


def ratio(row: dict[str, Any]) -> float:
    """Predicted over measured seconds."""
    work = {"kind": "diffusion", "height": row["side"], "width": row["side"], "steps": row["steps"]}
    scenario = {
        **{name: row[name] for name in ("model", "cluster", "library")},
        "decoder": row.get("decoder"),
        "workload": {**work, "guidance": row.get("guidance", True), "encoded": row.get("encoded", True)},
        "addons": {"controls": row.get("controls", 0), "adapters": row.get("adapters", 0), "rank": 128},
    }
    times = predict_request(make_diffusion(scenario, row["source"], ROWS.parent)).times
    return times.latency_s / row["seconds"] if "seconds" in row else times.step_s / row["step_s"]


def row_figures(row: dict[str, Any]) -> Figures:
    """Print a row; its time over the measured one, by library."""
    share, measured = ratio(row), row.get("seconds") or row["step_s"]
    added = "".join(f", {row[name]} {name}" for name in ("controls", "adapters") if name in row)
    row_name = f"{row['model']}, {row['side']} pixels, {row['steps']} steps{added}, {row['cluster']}"
    print(f"{row['source']:7}{row['library']:14}{row_name:65} {measured:.4g} s {share - 1:+.1%}")
    yield row["library"], share, 1.0


@command
def main() -> None:
    table = compared(measured_rows(), row_figures)
    print("\n" + "\n".join(table.lines()))
