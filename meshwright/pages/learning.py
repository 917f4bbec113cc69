"""What measured runs or servers taught, as an HTML page: errors before and after, and factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label, line_at
from meshwright.pages.sections import sections_of
from meshwright.reports.units import percent

BEFORE, AFTER, LEFT_OUT = "#9fb3c8", "#2c6fbb", "#c8374a"
ERRORS = {
    "error_before": ("before", BEFORE, "circle-open"),
    "error_after": ("after", AFTER, "circle"),
    "error_left_out": ("learned without it", LEFT_OUT, "diamond"),
}


NUMBERED = " Measurements are numbered as in the last table; point at one for its name."


def learning_page(learned: Mapping[str, Any], tables: Sequence[Table | str]) -> Page:
    """The page.

    Args:
        learned: what ``meshwright learn --json`` prints.
        tables: what it prints otherwise.
    """
    runs = [
        (f"{row['load']}, {row['latency']}" if "load" in row else row["case_id"], row)
        for row in learned.get("learned_runs") or learned["learned_loads"]
    ]
    means = {key: sum(abs(row[key]) for _, row in runs) / len(runs) for key in ERRORS}
    facts = {
        "device": learned["site"]["device"],
        "mean error before": percent(means["error_before"]),
        "after": percent(means["error_after"]),
        "learned without it": percent(means["error_left_out"]),
    }
    sections = [
        Section("Predicted over measured, less 1", f"Zero is right.{NUMBERED}", _errors(runs)),
        Section(
            "What was learned",
            "Measured over calibrated, with the spread before (grey) and after (blue). A factor whose spread "
            "does not shrink was not seen by these runs.",
            _factors([row for row in learned["learned_factors"] if "factor" in row]),
        ),
        *sections_of(tables),
    ]
    return Page(f"Learned from {len(runs)} measurements", facts, sections)


def _errors(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> Figure:
    numbers = [str(number) for number in range(1, len(runs) + 1)]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": words,
            "x": [row[key] for _, row in runs],
            "y": numbers,
            "text": [label(name) for name, _ in runs],
            "marker": {"size": 10, "color": colour, "symbol": symbol},
            "hovertemplate": f"%{{text}}: %{{x:+.1%}} {words}<extra></extra>",
        }
        for key, (words, colour, symbol) in ERRORS.items()
    ]
    axes = {"xaxis": axis(tickformat=".0%"), "yaxis": axis(autorange="reversed", type="category")}
    return figure_of(data, height=140 + 24 * len(runs), shapes=[line_at(0, color="#7b8794")], **axes)


def _factors(rows: Sequence[Mapping[str, Any]]) -> Figure:
    def bars(name: str, key: str, value: str | None, colour: str, width: int) -> dict[str, Any]:
        return {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [row[value] if value else 1.0 for row in rows],
            "y": [row["part"] for row in rows],
            "error_x": {
                "type": "data",
                "array": [row[key] for row in rows],
                "color": colour,
                "thickness": width,
            },
            "marker": {"size": 9, "color": colour},
            "hovertemplate": "%{y}: %{x:.3f}<extra></extra>",
        }

    data = [
        bars("before", "prior_spread", None, BEFORE, 5),
        bars("after", "posterior_spread", "factor", AFTER, 2),
    ]
    axes = {"xaxis": axis("measured / calibrated"), "yaxis": axis(autorange="reversed", type="category")}
    return figure_of(data, height=140 + 28 * len(rows), **axes)
