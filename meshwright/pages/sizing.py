"""Sizes of a training cluster as an HTML page: cost against time, and all sizes as a table."""

from __future__ import annotations

from typing import Any

from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label, line_at
from meshwright.reports.plan_evidence import short_runs
from meshwright.reports.sizing import band_of, band_words, energy_words, time_words, usd_words
from meshwright.reports.units import counted, percent, seconds
from planner.training.prediction import Prediction
from planner.training.sizing import Size, Sizing

COLOURS = ("#2c6fbb", "#c8374a", "#e9a23b", "#6a51a3", "#2aa198", "#7b8794")
HOURS = 24.0
"""Of a day."""
COLUMNS = ("cluster", "GPUs", "plan", "step", "MFU", "time", "±", "dollars", "energy", "")


def sizing_page(sizing: Sizing) -> Page:
    """The page."""
    planned = [size for size in sizing.sizes if size.planned]
    front = sizing.front
    fact_words = {"tokens": counted(sizing.tokens)}
    cheapest = "cheapest" if sizing.deadline_days is None else "cheapest in time"
    sizes = {cheapest: sizing.cheapest, "fastest": sizing.fastest}
    if sizing.cheapest is sizing.fastest:
        sizes = {f"{cheapest} and fastest": sizing.fastest}
    for name, size in sizes.items():
        if size is not None and size.result is not None:
            runs = short_runs(Prediction.of_search(size.result).confidence)
            fact_words[name] = f"{size.gpus:,} GPU{'s' * (size.gpus > 1)}"
            fact_words[f"{name}: time"] = f"{time_words(size)} ± {band_words(size)}"
            fact_words[f"{name}: cost"] = ", ".join(filter(None, (f"{usd_words(size)} $", runs)))
    words = (
        "Each point is the best plan at one size, with the 90 % bands of its time and dollars, which move "
        "together. On the line no other size is better in both."
    )
    rows = [_row(size, size in front) for size in planned]
    sections = [
        Section("Cost against time", words, _figure(sizing, planned)),
        Section(
            "All sizes",
            "",
            columns=COLUMNS,
            rows=rows,
            words_in=(0, 2),
        ),
    ]
    return Page(f"Sizes for {counted(sizing.tokens)} tokens", fact_words, sections)


def _figure(sizing: Sizing, planned: list[Size]) -> Figure:
    longest = max((size.days for size in planned), default=0.0)
    unit, per_day = ("days", 1.0) if longest >= 1.0 else ("hours", HOURS)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "front",
            "x": [size.days * per_day for size in reversed(sizing.front)],
            "y": [size.usd for size in reversed(sizing.front)],
            "line": {"color": "#9fb3c8", "dash": "dot"},
            "hoverinfo": "skip",
        }
    ]
    names = dict.fromkeys(size.cluster for size in planned)
    for index, name in enumerate(names):
        sizes = [size for size in planned if size.cluster == name]
        halves, colour = [band_of(size) or 0.0 for size in sizes], COLOURS[index % len(COLOURS)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": label(name),
                "x": [size.days * per_day for size in sizes],
                "y": [size.usd for size in sizes],
                "error_x": _bars(
                    [size.days * per_day * half for size, half in zip(sizes, halves, strict=True)], colour
                ),
                "error_y": _bars([size.usd * half for size, half in zip(sizes, halves, strict=True)], colour),
                "text": [f"{size.gpus:,}" for size in sizes],
                "textposition": "top center",
                "marker": {"size": 9, "color": colour},
                "hovertemplate": f"%{{text}} GPUs: %{{x:.1f}} {unit}, %{{y:,.0f}} $<extra></extra>",
            }
        )
    shapes = []
    if sizing.deadline_days is not None:
        shapes = [line_at(sizing.deadline_days * per_day, dash="dash", color="#c8374a")]
    axes = {"xaxis": axis(unit), "yaxis": axis("dollars")}
    return figure_of(data, height=460, hovermode="closest", shapes=shapes, **axes)


def _bars(halves: list[float], colour: str) -> dict[str, Any]:
    """Thin bars of half-widths around points."""
    return {"type": "data", "array": halves, "color": colour, "thickness": 0.7, "width": 2}


def _row(size: Size, on_front: bool) -> list[str]:
    if size.result is None:
        raise ValueError("a size without a plan has no row")
    metrics, plan = size.result.metrics, size.result.plans.plan(0)
    return [
        size.cluster,
        f"{size.gpus:,}",
        plan.describe(),
        seconds(float(metrics.step_time_s[0])),
        percent(float(metrics.model_flops_utilisation[0])),
        time_words(size),
        band_words(size),
        usd_words(size),
        energy_words(size),
        "front" if on_front else "",
    ]
