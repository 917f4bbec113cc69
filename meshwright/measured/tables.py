"""Measured scenarios beside their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from meshwright.measured.compared import MeasuredFigure, summary
from meshwright.reports.tables import fitted, table
from meshwright.reports.units import percent, signed_percent

HEADINGS = ("scenario", "figure", "measured", "predicted", "error", "citation")


def as_json(figures: Sequence[MeasuredFigure]) -> dict[str, Any]:
    """The figures with documented keys, in the units of the keys of ``simulate --json``."""
    cases = [
        {
            "case_id": figure.case_id,
            "citation": figure.citation,
            "figure": figure.figure,
            "predicted": figure.predicted,
            "measured": figure.measured,
            "relative_error": figure.relative_error,
        }
        for figure in figures
    ]
    return {"cases": cases, "summary": summary(figures)}


def as_tables(figures: Sequence[MeasuredFigure], each: bool) -> list[RenderableType]:
    """The verdict, each figure if asked for, and the errors by figure."""
    shares = ("median_abs_error", "p90_abs_error")
    errors = [
        [name, f"{line['n']:.0f}", *(percent(line[key]) for key in shares), signed_percent(line["bias"])]
        for name, line in summary(figures).items()
    ]
    headings = ("figure", "n", "median error", "90th percentile", "bias")
    listed = [table(HEADINGS, [_row(figure) for figure in figures], left=2)] if each else []
    off = [
        f"{name} {percent(line['median_abs_error'])} off" + (" in the median" if line["n"] > 1 else "")
        for name, line in summary(figures).items()
    ]
    return ["\n".join(fitted(off)), *listed, table(headings, errors)]


def _row(figure: MeasuredFigure) -> list[str]:
    values = (f"{value:.4g}" for value in (figure.measured, figure.predicted))
    return [figure.case_id, figure.figure, *values, signed_percent(figure.relative_error), figure.citation]
