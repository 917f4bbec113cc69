"""Effects of variations of a scenario, as an HTML page: steps by part, a curve or a map per sweep."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label
from meshwright.pages.sections import GROUP_SHADES, sections_of, stacked_bars
from meshwright.reports.parts import GROUPS, colour, grouped
from meshwright.reports.units import counted, percent, seconds
from meshwright.variations.answer import Outcome
from meshwright.variations.question import abbreviated
from meshwright.variations.tables import NUMBERS, band_words, failures, figures, run_comparison
from simulator.plan import Plan

MOST_BARS = 60
"""Maximum number of runs drawn as bars; longer sweeps have curves only."""


def variations_page(title: str, outcomes: Sequence[Outcome]) -> Page:
    """The page of an answer.

    Args:
        title: of the scenario; shown as it is, like all names of the user's.
        outcomes: the base first.
    """
    ran = [outcome for outcome in outcomes if outcome.report is not None]
    words = "Seconds of one step by part; the first bar is the scenario itself."
    if len(ran) > MOST_BARS:
        words += f" The first {MOST_BARS} of {len(ran)} runs are drawn."
    sections = [Section("Where each step goes", words, _bars(ran[:MOST_BARS]))]
    for name, group in groupby(ran[1:], key=lambda outcome: outcome.run.name):
        sections += _sweep(name, list(group))
    columns, rows = figures(ran)
    words_in = (0, *range(NUMBERS, len(columns)))
    sections.append(
        Section("Figures", " ".join(band_words(ran)), columns=columns, rows=rows, words_in=words_in)
    )
    sections += sections_of(run_comparison(ran))
    if failed := failures(outcomes):
        columns = ("variation", "because")
        sections.append(Section("Cannot be run", "", columns=columns, rows=failed, words_in=(0, 1)))
    return Page(title or "What if", _facts(ran[0].report or {}), sections)


def _facts(base: dict[str, Any]) -> dict[str, str]:
    plan = Plan(**base["plan"])
    tokens, half = base["seq_len"] * base["global_batch"], base.get("step_time_uncertainty")
    band = "" if half is None else f" ± {percent(half, 0)}"
    return {
        "model": base["model"],
        "cluster": f"{base['gpus']:,} x {base['device']} ({base['cluster']})",
        "plan": f"{plan.describe()}, micro batch {plan.micro_batch}, {plan.schedule}",
        "step": f"{seconds(base['step_time_s'])}{band} for {counted(tokens)} tokens",
    }


def _bars(ran: Sequence[Outcome]) -> Figure:
    """One bar per run."""
    parts = [grouped((outcome.report or {})["time_breakdown_s"]) for outcome in ran]
    rows = [label(outcome.run.label) for outcome in ran]
    return stacked_bars(rows, parts, GROUP_SHADES, height=130 + 28 * len(ran))


def _sweep(name: str, points: Sequence[Outcome]) -> list[Section]:
    """A curve for a sweep of one key, a map for a sweep of two."""
    keys = list(points[0].run.point)
    if len(keys) == 1 and len(points) > 1:
        return [Section(name, f"The step against {keys[0]}.", _curve(keys[0], points))]
    if len(keys) == 2:
        words = f"Tokens a second of a GPU against {keys[0]} and {keys[1]}."
        return [Section(name, words, _map(keys[0], keys[1], points))]
    return []


def _curve(key: str, points: Sequence[Outcome]) -> Figure:
    values = [outcome.run.point[key] for outcome in points]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numeric:
        points = sorted(points, key=lambda outcome: outcome.run.point[key])
        values = sorted(values)
    x = values if numeric else [label(abbreviated(value)) for value in values]
    parts = [grouped((outcome.report or {})["time_breakdown_s"]) for outcome in points]
    wide = numeric and min(values) > 0 and max(values) >= 8 * min(values)
    kind = {"type": "scatter", "mode": "lines", "stackgroup": "step"} if numeric else {"type": "bar"}
    data = [
        kind
        | {
            "name": group,
            "x": x,
            "y": [part.get(group, 0.0) for part in parts],
            ("fillcolor" if numeric else "marker"): colour(group) if numeric else {"color": colour(group)},
            "hovertemplate": f"{group}: %{{y:.4g}} s<extra>%{{x}}</extra>",
        }
        | ({"line": {"width": 0.5, "color": colour(group)}} if numeric else {})
        for group in GROUPS
        if any(part.get(group, 0.0) > 0 for part in parts)
    ]
    ticks = {"tickvals": x} if numeric else {}
    return figure_of(
        data,
        barmode="stack",
        height=400,
        xaxis=axis(label(key), type="log" if wide else "linear" if numeric else "category", **ticks),
        yaxis=axis("seconds", rangemode="tozero"),
    )


def _map(first: str, second: str, points: Sequence[Outcome]) -> Figure:
    rows = list(dict.fromkeys(abbreviated(outcome.run.point[first]) for outcome in points))
    columns = list(dict.fromkeys(abbreviated(outcome.run.point[second]) for outcome in points))
    cells = {
        (abbreviated(outcome.run.point[first]), abbreviated(outcome.run.point[second])): outcome.report or {}
        for outcome in points
    }
    points_drawn = [
        (column, row, cells[rows[row], columns[column]])
        for row in range(len(rows))
        for column in range(len(columns))
        if (rows[row], columns[column]) in cells
    ]
    speeds = [report["tokens_per_s_per_gpu"] for _, _, report in points_drawn]
    texts = [
        f"{speed:,.0f}<br>{seconds(report['step_time_s'])}"
        for speed, (_, _, report) in zip(speeds, points_drawn, strict=True)
    ]
    # Cells are bars of height 1: heat maps are not in the small part of plotly.js.
    heat = {
        "type": "bar",
        "x": [column for column, _, _ in points_drawn],
        "y": [1] * len(points_drawn),
        "base": [row - 0.5 for _, row, _ in points_drawn],
        "width": 1,
        "text": texts,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "marker": {
            "color": speeds,
            "colorscale": [[0, "#f4e4c1"], [0.5, "#64a0aa"], [1, "#1a3c6e"]],
            "colorbar": {"title": {"text": "tok/s/GPU", "side": "right"}},
        },
        "customdata": [label(f"{rows[row]}, {columns[column]}") for column, row, _ in points_drawn],
        "hovertemplate": "%{customdata}: %{text}<extra>tok/s/GPU, step</extra>",
    }
    across = {"tickvals": list(range(len(columns))), "ticktext": [label(column) for column in columns]}
    upwards = {"tickvals": list(range(len(rows))), "ticktext": [label(row) for row in rows]}
    return figure_of(
        [heat],
        barmode="overlay",
        height=170 + 48 * len(rows),
        xaxis=axis(label(second), showgrid=False, **across),
        yaxis=axis(label(first), showgrid=False, **upwards),
    )
