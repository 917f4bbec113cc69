"""Effects of variations of a serving scenario, as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from meshwright.pages.fronts import log_ticks
from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label
from meshwright.reports.units import percent, seconds
from meshwright.variations.answer import Outcome
from meshwright.variations.question import abbreviated
from meshwright.variations.serving_tables import comparison_rows, difference_words
from meshwright.variations.tables import failures

LINES = (
    ("ttft_s", "p50", "#f2a0a9"),
    ("ttft_s", "p99", "#c8374a"),
    ("tpot_s", "p50", "#62a5e3"),
    ("tpot_s", "p99", "#2c6fbb"),
)


def serving_variations_page(title: str, outcomes: Sequence[Outcome]) -> Page:
    """The page of an answer; the first outcome is the base."""
    ran = [outcome for outcome in outcomes if outcome.report is not None]
    base = ran[0].report or {}
    columns, rows = comparison_rows(outcomes)
    sections = [Section("Latencies", "Median and 99th percentile of each variation.", _latencies(ran))]
    words = " ".join(difference_words(outcomes))
    sections.append(Section("Figures", words, columns=columns, rows=rows))
    for name, group in groupby(ran[1:], key=lambda outcome: outcome.run.name):
        points = list(group)
        keys = list(points[0].run.point)
        if len(keys) == 1 and len(points) > 1:
            sections.append(
                Section(name, f"Latencies and throughput against {keys[0]}.", _curve(keys[0], points))
            )
    if failed := failures(outcomes):
        named = ("variation", "because")
        sections.append(Section("Cannot be run", "", columns=named, rows=failed, words_in=(0, 1)))
    errors = base.get("expected_errors") or {}
    latencies = {
        f"{name.upper()} p50": f"{seconds(base[f'{name}_s']['p50'])} ± {percent(error['p90'], 0)}"
        for name, error in errors.items()
        if base.get(f"{name}_s")
    }
    facts = {
        "model": base["model"],
        "cluster": f"{base['gpus']:,} x {base['device']} ({base['cluster']})",
        "requests": f"{base['requests']:,}",
        **{f"{name} of the base": words for name, words in latencies.items()},
    }
    return Page(title or "What if", facts, sections)


def _latencies(ran: Sequence[Outcome]) -> Figure:
    """Time to first token and per output token, a row for each variation."""
    names = [label(outcome.run.label) for outcome in ran]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{name[:4].upper()} {point}",
            "x": [((outcome.report or {})[name] or {}).get(point) for outcome in ran],
            "y": list(range(len(ran))),
            "marker": {"color": colour, "size": 11},
            "hovertemplate": f"{name[:4].upper()} {point}: %{{x:.3g}} s<extra></extra>",
        }
        for name, point, colour in LINES
    ]
    ticks = {"tickvals": list(range(len(ran))), "ticktext": names}
    drawn = np.array([value for line in data for value in line["x"] if value])
    return figure_of(
        data,
        height=130 + 28 * len(ran),
        xaxis=axis("seconds", **(log_ticks(drawn) if len(drawn) else {})),
        yaxis=axis(range=[len(ran) - 0.5, -0.5], **ticks),
    )


def _curve(key: str, points: Sequence[Outcome]) -> Figure:
    values = [outcome.run.point[key] for outcome in points]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    x = values if numeric else [label(abbreviated(value)) for value in values]
    reports = [outcome.report or {} for outcome in points]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"{name[:4].upper()} {point}",
            "x": x,
            "y": [(report[name] or {}).get(point) for report in reports],
            "line": {"color": colour},
        }
        for name, point, colour in LINES
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "output tokens/s",
            "x": x,
            "y": [report["output_rate"] for report in reports],
            "yaxis": "y2",
            "line": {"color": "#6a51a3"},
        }
    )
    return figure_of(
        data,
        height=480,
        xaxis=axis(label(key), anchor="y2", type="linear" if numeric else "category"),
        yaxis=axis("latency (s)", type="log", domain=[0.38, 1]),
        yaxis2=axis("tokens/s", domain=[0, 0.3], rangemode="tozero"),
    )
