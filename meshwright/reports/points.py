"""Files of measured points, as `profile` and its --import write them."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, table
from meshwright.reports.units import seconds
from profiles.importers import ImportResult
from profiles.measure import ProfileResult


def as_json(result: ProfileResult | ImportResult) -> dict[str, Any]:
    """A run with documented keys."""
    if isinstance(result, ImportResult):
        return {
            "files": {name: str(path) for name, path in result.files.items()},
            "kept": result.written,
            "impossible": result.impossible,
            "below_resolution": result.zero,
            "merged": result.merged,
            "read": result.read,
            "passed_over": result.passed_over,
        }
    return {
        "out": str(result.out),
        "device": result.device,
        "planned": result.planned,
        "measured": result.measured,
        "resumed": result.resumed,
        "skipped": [{"point": point.point, "reason": point.reason} for point in result.skipped],
        "interrupted": result.interrupted,
        "time_s": result.seconds,
        "files": [str(path) for path in result.files],
    }


def as_tables(result: ProfileResult | ImportResult) -> list[Table]:
    """A run for people."""
    if isinstance(result, ImportResult):
        return [_imported(result)]
    measured = f"{result.measured} of {result.planned} points in {seconds(result.seconds)}"
    lines = {
        "device": result.device,
        "measured": measured + (f", {result.resumed} were there already" if result.resumed else ""),
        "skipped": f"{len(result.skipped)}" if result.skipped else "",
        "interrupted": "yes; run the same command to go on" if result.interrupted else "",
        "files": ", ".join(str(path) for path in result.files),
    }
    parts = [facts({name: value for name, value in lines.items() if value})]
    if result.skipped:
        rows = [[point.point, point.reason] for point in result.skipped]
        parts.append(table(("skipped point", "reason"), rows, left=2))
    return parts


def _imported(result: ImportResult) -> Table:
    rows = [
        [str(path), f"{result.written[name]}", f"{result.impossible[name]}", f"{result.zero[name]}"]
        for name, path in result.files.items()
    ]
    headings = ("file", "points", "dropped: faster than the device", "dropped: below the clock's resolution")
    read = ", ".join(f"{count} of {name}" for name, count in result.read.items())
    title = f"Read {read}; {result.passed_over} other files; {result.merged} repeated measurements merged"
    return table(headings, rows, title)
