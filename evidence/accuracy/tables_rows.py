"""Steps of recommendation models that MLPerf's logs print, and predictions; nothing is fitted.

    python -m benchmarks.tables_rows

Copied tables are those under HugeCTR's DP_SHARDING_THRESHOLD of the run, in bytes (0.0125 and 0.008 GiB).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from evidence.accuracy.errors import Figures, compared
from evidence.command import command
from simulator.tables.scenario import make_tables
from simulator.tables.step import predict_step

ROWS = Path(__file__).with_name("tables_rows.yaml")


def measured_rows() -> list[dict[str, Any]]:
    """Rows with ``name``, ``source``, ``step_s``, the scenario, and why it is missed, if it is."""
    return yaml.safe_load(ROWS.read_text(encoding="utf-8"))


def ratio(row: dict[str, Any]) -> float:
    """Predicted over measured seconds."""
    return predict_step(make_tables(row["scenario"], row["name"], ROWS.parent)).step_s / row["step_s"]


def row_figures(row: dict[str, Any]) -> Figures:
    """Print a row; its step over the measured one."""
    share, measured = ratio(row), 1e3 * row["step_s"]
    words = f"{share - 1:+.1%} {row.get('missed', '')}".strip()
    print(f"| {row['name']} | {measured:.2f} | {share * measured:.2f} | {words} |")
    yield "step", share, 1.0


@command
def main() -> None:
    print("| run | measured, ms | predicted, ms | error |\n|---|---|---|---|")
    print("\n" + "\n".join(compared(measured_rows(), row_figures).lines()))
