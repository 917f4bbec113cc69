"""All scored plans of a search as a CSV file, one row per plan, the best first."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from core.files import atomic_write, plain_cell
from meshwright.reports.plans import figures
from planner.training.prediction import Prediction
from planner.training.scored_plans import ScoredPlans
from simulator.levers import SHARED, modules_of
from simulator.plan import COLUMNS, Choice, Plan, Plans
from simulator.setting import Setting
from simulator.uncertainty import chance_to_fit

DIGITS = 7
"""Significant digits of a figure, as in the ranking of a search."""


def write_scored(
    path: Path, setting: Setting, plans: ScoredPlans, progress: Callable[[float], None] | None = None
) -> None:
    """Write every scored plan: its fields, its figures under their JSON names, its peak memory.

    Args:
        path: the CSV file; it appears only when it is complete.
        setting: of the plans, with the cluster resized to the devices in use.
        plans: the plans.
        progress: called with the finished share.

    Raises:
        InputError: the file cannot be written.
    """
    written = 0
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for prediction in plans.predictions(setting):
            columns = _columns(prediction, written)
            if not written:
                writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
            written += len(prediction.plans)
            if progress:
                progress(written / len(plans))


def _columns(prediction: Prediction, before: int) -> dict[str, Iterable[str]]:
    """Cells by heading; ``before`` plans are already written."""
    plans, peak = prediction.plans, prediction.memory.peak
    columns: dict[str, Iterable[str]] = {"rank": map(str, range(before + 1, before + len(plans) + 1))}
    for name in COLUMNS:
        # A field has few values: each is written once and repeated.
        values, which = np.unique(getattr(plans, name), return_inverse=True)
        cells = [_cell(name, plans, int(value)) for value in values.tolist()]
        columns[name] = np.array(cells, dtype=object)[which].tolist()
    shared = {name: getattr(plans.shared, name) for name in SHARED}
    for name, value in shared.items():
        if value is not None:
            cell = str(value).lower() if isinstance(value, bool) else plain_cell(str(value))
            columns[name] = [cell] * len(plans)
    numbers = {
        **figures(prediction.metrics),
        "peak_memory_bytes": peak,
        "chance_to_fit": chance_to_fit(
            peak, prediction.setting.cluster.device.memory_bytes, prediction.setting
        ),
    }
    return columns | {name: _cells(values) for name, values in numbers.items()}


def _cell(name: str, plans: Plans, value: int) -> str:
    """One value of a plan field; empty where the choice is left to the release."""
    if name == "recompute_modules":
        return " ".join(modules_of(value) or ())
    words = plans.schedule_names if name == "schedule" else Choice.get(name)
    if words is None and Plan.model_fields[name].annotation is bool:
        words = ("false", "true")
    return str(value) if words is None else plain_cell(words[value] or "")


def _cells(values: np.ndarray) -> list[str]:
    return [f"{value:.{DIGITS}g}" for value in values.tolist()]
