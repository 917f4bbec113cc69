"""Pareto fronts: tables for people, JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from meshwright.reports.tables import table
from meshwright.reports.units import percent, significant
from planner.pareto import Axis, Front, Fronts

MOST_ROWS = 10
"""Points of a front in a table; a longer front is thinned evenly, its ends kept."""

BAND = "±: one of ten measured runs or servers lies beyond, in time; rates, cost and energy go with it."


def describe_fronts(fronts: Fronts) -> dict[str, Any]:
    """All fronts with documented keys."""
    return {
        "subject": fronts.subject,
        "points": len(fronts),
        "fronts": [
            {
                "x": front.x.key,
                "y": front.y.key,
                "points": [
                    {
                        "name": fronts.name(int(point)),
                        front.x.key: float(front.x.values[point]),
                        front.y.key: float(front.y.values[point]),
                        "uncertainty": fronts.band(int(point)),
                        "scenario": fronts.scenario(int(point)),
                    }
                    for point in front.points
                ],
            }
            for front in fronts.fronts
        ],
    }


def front_tables(fronts: Fronts) -> list[Table | str]:
    """The ends of the first front, one table per front, and what its band is."""
    has_bands = any(fronts.band(int(point)) is not None for front in fronts.fronts for point in front.points)
    tables = [part for front in fronts.fronts for part in (_title(fronts, front), _table(fronts, front))]
    return [*(_ends(front) for front in fronts.fronts[:1]), *tables, *([BAND] if has_bands else [])]


def _ends(front: Front) -> str:
    """The first and the last point of a front, and which points keep to the target."""
    ends = [
        " at ".join(_with_unit(each, point) for each in (front.x, front.y))
        for point in (front.points[0], front.points[-1])
    ]
    return f"From {ends[0]} to {ends[1]}.{_within(front)}"


def _within(front: Front) -> str:
    """How many points of a front keep to the target of its first figure, and the last of them."""
    target = front.x.target
    if target is None:
        return ""
    within = [int(point) for point in front.points if front.x.keeps(int(point))]
    limit = f"the target ({'at least' if front.x.higher else 'at most'} {significant(target)})"
    if not within:
        return f" No point is within {limit}."
    last = " at ".join(_with_unit(each, within[-1]) for each in (front.x, front.y))
    return f" {len(within)} of {len(front.points)} points are within {limit}: down to {last}."


def _with_unit(figure: Axis, point: int) -> str:
    """A point's figure with its unit: step time 14.1 s, 93.4 tokens/s of a user."""
    name, _, unit = figure.name.partition(", ")
    value = significant(float(figure.values[point]))
    return f"{name} {value} {unit}" if unit else f"{value} {name}"


def _title(fronts: Fronts, front: Front) -> str:
    """The question, and how many points the front has."""
    more = f"; {MOST_ROWS} of {len(front.points)} shown" if len(front.points) > MOST_ROWS else ""
    return f"{fronts.subject}: front of {len(fronts):,} plans{more}"


def _table(fronts: Fronts, front: Front) -> Table:
    points = front.points
    if len(points) > MOST_ROWS:
        points = points[np.unique(np.linspace(0, len(points) - 1, MOST_ROWS).round().astype(int))]
    rows = [
        [
            significant(float(front.x.values[point])) + _missed(front, point),
            band_words(fronts, point),
            significant(float(front.y.values[point])),
            fronts.name(point),
        ]
        for point in points.tolist()
    ]
    sheet = table((front.x.name, "±", front.y.name, "plan"), rows)
    sheet.columns[-1].justify = "left"
    return sheet


def _missed(front: Front, point: int) -> str:
    return "" if front.x.keeps(point) else " misses"


def band_words(fronts: Fronts, point: int) -> str:
    """The half-width of a point's band; empty where no error is known."""
    half = fronts.band(point)
    return "" if half is None else percent(half, 0)
