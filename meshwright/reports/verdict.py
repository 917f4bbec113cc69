"""Below a ranking: why each plan is shown, whether the order can be trusted, and what the figures rest on."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from meshwright.reports.basis import basis
from meshwright.reports.tables import table
from meshwright.reports.units import percent
from planner.search import SearchResult
from simulator.uncertainty import distinguishable, model_errors


def verdict(result: SearchResult) -> list[Table | str]:
    """Reasons, distinguishability, basis, and the count of candidates that each rule removed."""
    rows: list[Sequence[str]] = [[name, f"{count:,}"] for name, count in result.removed.items() if count]
    rows += [["scored", f"{result.scored:,}"], ["all", f"{result.candidates:,}"]]
    removed = table(("removed by rule", "candidates"), rows)
    return [*_reasons(result), *_order(result), basis(result), removed]


def _reasons(result: SearchResult) -> list[Table]:
    if not result.rows:
        return []
    rows = [
        [str(number), ", ".join(row.families), ", ".join(row.also)]
        for number, row in enumerate(result.rows, start=1)
    ]
    made = table(("rank", "shown as", "near duplicates"), rows, left=3)
    return [made]


def _order(result: SearchResult) -> list[str]:
    times = [float(value) for value in result.step.time]
    errors = model_errors().difference
    words = []
    if result.rows:
        words.append(
            f"Rank 1 is the simplest plan within {percent(errors.even, 0)} of the fastest; "
            "a predicted gap of that size says nothing about the order."
        )
    alike = [str(number) for number, step in enumerate(times[1:], 2) if not distinguishable(min(times), step)]
    if alike:
        words.append(
            f"Rank {', '.join(alike)}: too close to the fastest to tell apart (the ratio of two predicted "
            f"steps is off by {percent(errors.median, 0)} in the median)."
        )
    return words
