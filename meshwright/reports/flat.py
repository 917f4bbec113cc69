"""Reports as rows of plain figures, and rows as columns of a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

Columns = dict[str, list[Any]]
"""One list per figure, all of one length."""


def flat(report: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Scalars of a report by dotted name; lists, whose length may differ between points, are left out."""
    row: dict[str, Any] = {}
    for key, value in report.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            row |= flat(value, name)
        elif isinstance(value, float):
            row[name] = float(value)
        elif isinstance(value, str | int) or value is None:
            row[name] = value
    return row


def of_plan(report: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's figures, the fields of the plan as ``plan.tensor`` and so on, and its memory."""
    scalars = {key: value for key, value in report.items() if isinstance(value, int | float | str | None)}
    scalars |= {f"plan.{key}": value for key, value in report.get("plan", {}).items()}
    memory = report.get("memory", {})
    return scalars | {key: memory[key] for key in ("peak_bytes", "capacity_bytes", "fits") if key in memory}


def columns(rows: Iterable[Mapping[str, Any]], first: Sequence[str] = ()) -> Columns:
    """Rows as columns: the named ones first; None where a row lacks a figure, or where it is infinite."""
    rows = list(rows)
    names = dict.fromkeys([*first, *(name for row in rows for name in row)])
    return {name: [_finite(row.get(name)) for row in rows] for name in names}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
