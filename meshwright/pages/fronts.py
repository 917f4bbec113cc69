"""Pareto fronts as an HTML page: plans as points, the front as a line, a click for a point's scenario."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

import numpy as np

from core.yaml_text import yaml_text
from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label, line_at
from meshwright.reports.fronts import band_words
from planner.pareto import Front, Fronts

MOST_POINTS = 1500
"""Points beside a front that a chart draws, evenly spread over all."""
BESIDE = 1.1
"""Plans beside a front are drawn up to this many times its last value, where less is better."""
LINEAR_UP_TO, DECADES_FROM = 5, 30
"""Highest over lowest value up to which an axis is linear, and from which only its decades are labelled."""
FRONT, OTHERS = "#c8374a", "#9fb3c8"
HINT = "Click a point of the front for its scenario: save it as a file and run `meshwright simulate FILE`."


def fronts_page(fronts: Fronts) -> Page:
    """The page."""
    sections = [
        Section(_heading(front), _words(fronts, front), _figure(fronts, front), hint=HINT)
        for front in fronts.fronts
    ]
    counts = {
        f"front of {front.y.name}": f"{len(front.points)} {'plan' if len(front.points) == 1 else 'plans'}"
        for front in fronts.fronts
    }
    best = {}
    for front in fronts.fronts:
        first = int(front.points[0]) if len(front.points) else None
        if first is not None:
            best[f"best {front.x.name}"] = f"{front.x.values[first]:.4g}: {fronts.name(first)}"
    facts = {"plans": f"{len(fronts):,}", **counts, **best}
    return Page(f"Pareto fronts: {fronts.subject}", facts, sections)


def _heading(front: Front) -> str:
    text = f"{front.y.name} against {front.x.name}"
    # "kWh" keeps its letter.
    return text if text[1].isupper() else text[0].upper() + text[1:]


def _words(fronts: Fronts, front: Front) -> str:
    better = [f"{'more' if axis.higher else 'less'} {axis.name}" for axis in (front.x, front.y)]
    words = f"Better is {better[0]} and {better[1]}. On the line no other plan is better in both."
    if any(fronts.band(int(point)) is not None for point in front.points):
        words += " Bars: one of ten measured runs lies beyond."
    return words if front.x.target is None else f"{words} The dashed line is the target."


def _figure(fronts: Fronts, front: Front) -> Figure:
    on = front.points
    usable = np.flatnonzero(np.isfinite(front.x.values) & np.isfinite(front.y.values))
    if not front.x.higher:
        drawn = front.x.values <= BESIDE * front.x.values[on].max()
        usable = usable[drawn[usable]]
    others = np.setdiff1d(usable, on)
    others = others[:: max(1, -(-len(others) // MOST_POINTS))]
    bands = np.array([fronts.band(int(point)) or 0.0 for point in on])
    above = bands * front.x.values[on]
    # Errors are ratios, so the lower end never reaches zero.
    ends = {"symmetric": False, "array": above.tolist(), "arrayminus": (above / (1 + bands)).tolist()}
    line = {
        **_points(fronts, front, on, "front", FRONT, 8),
        "error_x": {**ends, "color": FRONT, "thickness": 1, "width": 0, "visible": bool(bands.any())},
        "mode": "lines+markers",
        "line": {"color": FRONT, "width": 1.5},
        "picks": [yaml_text(fronts.scenario(int(point))) for point in on],
    }
    data = [_points(fronts, front, others, "other plans", OTHERS, 5), line]
    spread = {name: axis_scale(measure.values[usable]) for name, measure in (("x", front.x), ("y", front.y))}
    x, y = axis(front.x.name, **spread["x"]), axis(front.y.name, **spread["y"])
    shapes = [] if front.x.target is None else [target_line(front.x.target)]
    return figure_of(data, height=480, hovermode="closest", shapes=shapes, xaxis=x, yaxis=y)


def target_line(value: float) -> dict[str, Any]:
    """A dashed line across a chart at a target of its horizontal axis."""
    return line_at(value, dash="dash", color=FRONT, width=1.5)


def axis_scale(values: np.ndarray) -> dict[str, Any]:
    """A logarithmic axis where a few plans would squeeze the others into a corner."""
    ratio = values.max() / max(values.min(), 1e-12)
    if ratio <= LINEAR_UP_TO or values.min() <= 0:
        return {}
    if ratio > DECADES_FROM:
        return {"type": "log", "dtick": 1}
    # Plotly would label 20 as "2".
    return log_ticks(values, (1, 2, 3, 5, 7))


def log_ticks(values: np.ndarray, digits: Sequence[int] = (1, 2, 5)) -> dict[str, Any]:
    """A logarithmic axis with some digits of each decade that the values reach."""
    decades = range(floor(log10(values.min())), ceil(log10(values.max())) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in digits]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _points(
    fronts: Fronts, front: Front, rows: np.ndarray, name: str, shade: str, size: int
) -> dict[str, Any]:
    names = [
        f"{fronts.name(point)}{f' ± {band}' if (band := band_words(fronts, point)) else ''}"
        for point in rows.tolist()
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": front.x.values[rows].tolist(),
        "y": front.y.values[rows].tolist(),
        "marker": {"color": shade, "size": size},
        "customdata": [label(name) for name in names],
        "hovertemplate": "%{customdata}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
    }
