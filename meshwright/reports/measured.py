"""Measured scenarios beside their predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import RenderableType

from meshwright.reports.tables import fitted, table
from meshwright.reports.units import percent, signed_percent

HEADINGS = ("scenario", "figure", "measured", "predicted", "error", "citation")


@dataclass(frozen=True)
class MeasuredFigure:
    """One measured figure of a scenario with its prediction, in the unit of the figure's key."""

    case_id: str
    citation: str
    figure: str
    measured: float
    predicted: float

    @property
    def relative_error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0


def summary(figures: Iterable[MeasuredFigure]) -> dict[str, dict[str, float]]:
    """Median, 90th percentile and bias of the errors of each figure, as shares."""
    errors: dict[str, list[float]] = {}
    for figure in figures:
        errors.setdefault(figure.figure, []).append(figure.relative_error)
    return {
        name: {
            "n": len(values),
            "median_abs_error": float(np.median(np.abs(values))),
            "p90_abs_error": float(np.percentile(np.abs(values), 90)),
            "bias": float(np.mean(values)),
        }
        for name, values in errors.items()
    }


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
