"""Kernel times, predicted against measured."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, table
from meshwright.reports.units import percent
from profiles.kernel_validation import KernelValidation


def as_json(validation: KernelValidation) -> dict[str, Any]:
    """The errors with documented keys."""
    return {"kernels": validation.rows, "skipped": validation.skipped, "dropped": validation.dropped}


def as_tables(validation: KernelValidation) -> list[Table]:
    """The errors for people."""
    headings = (
        "operation",
        "GPU",
        "dtype",
        "points",
        "median",
        "90th pct",
        "large",
        "",
        "small",
        "",
        "form alone",
        "",
    )
    errors = (
        "median_error",
        "p90_error",
        "large_median_error",
        "large_p90_error",
        "small_median_error",
        "small_p90_error",
    )
    rows = [
        [
            row["operation"],
            row["gpu"],
            row["dtype"],
            str(row["points"]),
            *(_share(row[name]) for name in errors),
            *(_share(row["form_alone"][name]) for name in errors[:2]),
        ]
        for row in validation.rows
    ]
    title = "Error of each point: median and 90th percentile; large kernels take longer than 50 us"
    parts = [table(headings, rows, title, left=3)] if rows else []
    if validation.dropped:
        parts.append(
            facts({"dropped": f"{validation.dropped} points that are faster than their device can be"})
        )
    if validation.skipped:
        parts.append(
            table(("not predicted", "points", "reason"), [_skipped(row) for row in validation.skipped])
        )
    return parts


def _share(value: float | None) -> str:
    return "" if value is None else percent(value)


def _skipped(row: dict[str, Any]) -> list[str]:
    words = [row["table"], row["gpu"], row.get("dtype", "")]
    return [" ".join(word for word in words if word), str(row["points"]), row["reason"]]
