"""The result of a search as an HTML page: the ranking, breakdowns of steps and of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.pages.explorer import explorer_section
from meshwright.pages.page import Figure, Page, Section, axis, label, layout, line_at
from meshwright.reports.basis import basis_words
from meshwright.reports.parts import GROUPS, colour, grouped
from meshwright.reports.plan_evidence import short_runs
from meshwright.reports.plans import ODDS, chance, rank_columns, recomputed, sharding
from meshwright.reports.units import counted, percent, seconds, significant
from meshwright.reports.verdict import headline, order_words, reason_rows, removed_rows
from planner.training.prediction import Prediction
from planner.training.scored_plans import ScoredPlans
from planner.training.search import SearchResult
from simulator.plan import Plan

Report = Mapping[str, Any]
"""A plan as ``plan --json`` describes it."""

MEMORY_COLOURS = ("#2c6fbb", "#62a5e3", "#6a51a3", "#e9a23b", "#c8374a", "#7b8794", "#9fb3c8", "#d98c5f")
LIMIT = "#c8374a"
MOST_COLUMNS = 6
"""Plans that fit beside each other."""


def plans_page(
    result: SearchResult, prediction: Prediction, plans: Sequence[Report], all_plans: ScoredPlans | None
) -> Page:
    """The page of a search that found plans.

    Args:
        result: the search.
        prediction: its plans, with step, memory and metrics.
        plans: the same as ``plan --json`` describes them.
        all_plans: every scored plan, where the search kept them.
    """
    setting, first = result.setting, Plan(**plans[0]["plan"])
    sections = [
        Section("In short", headline(prediction).replace("\n", " ")),
        _ranking(result, prediction),
        Section(
            "Where the steps' time goes",
            "Kernels by kind, communication that no kernel hides, and waiting.",
            _time(plans),
        ),
        Section(
            "What fills the memory",
            "The fullest device of each plan. The dashed line is the device's memory, the dotted one what "
            "plans may fill.",
            _memory(plans, setting.cluster.device.memory_bytes, result.space.usable_bytes),
        ),
        *([explorer] if (explorer := explorer_section(setting, all_plans)) is not None else []),
        *_tables(result),
    ]
    training, cluster = setting.training, setting.cluster
    facts = {
        "model": setting.model.name,
        "cluster": f"{cluster.devices:,} x {cluster.device.name} ({cluster.name})",
        "step": f"{training.words}, {training.precision}",
        "best plan": f"{first.describe()}, micro batch {first.micro_batch}",
        "its layout": f"{first.schedule}, recompute {recomputed(first)}, sharding {sharding(first)}",
        "its step time": seconds(plans[0]["step_time_s"]) + _band(prediction),
        "evidence": short_runs(prediction.confidence) or "timed by the engine",
        "tokens of a step": counted(training.tokens),
        "its MFU": percent(plans[0]["mfu"]),
        "dollars per million tokens": significant(plans[0]["usd_per_million_tokens"]),
        "memory": _memory_words(plans[0]),
    }
    return Page(f"Plans for {setting.model.name} on {cluster.devices:,} GPUs", facts, sections)


def _memory_words(report: Report) -> str:
    """Peak of the first plan, the device's memory, and the chance to fit."""
    memory = report["memory"]
    peak, capacity = (memory[key] / 2**30 for key in ("peak_bytes", "capacity_bytes"))
    return f"{peak:.1f} of {capacity:.1f} GiB, fits with {chance(memory['chance_to_fit'])}"


def _band(prediction: Prediction) -> str:
    """The 90 % band of the first plan's step; empty where it is not known."""
    confidence = prediction.confidence
    return "" if confidence is None else f" ± {percent(float(confidence.half_width[0]), 0)}"


def _ranking(result: SearchResult, prediction: Prediction) -> Section:
    """The table of plans: one per column where all fit, else one per line."""
    columns = {name: cells for name, cells in rank_columns(prediction).items() if name not in ODDS}
    words = " ".join(order_words(result, prediction, more=False))
    if len(result.plans) > MOST_COLUMNS:
        rows = list(zip(*columns.values(), strict=True))
        return Section("Plans", words, columns=list(columns), rows=rows, words_in=(1,))
    headings = ["rank", *columns.pop("rank")]
    return Section("Plans", words, columns=headings, rows=[[name, *cells] for name, cells in columns.items()])


def _tables(result: SearchResult) -> list[Section]:
    basis = [[name, words] for name, words in basis_words(result).items()]
    sections = []
    if reasons := reason_rows(result):
        columns = ("rank", "shown as", "near duplicates")
        sections.append(Section("Why these plans", "", columns=columns, rows=reasons, words_in=(1, 2)))
    sections.append(
        Section("What this rests on", "", columns=("basis", "value"), rows=basis, words_in=(0, 1))
    )
    columns, words = ("rule", "candidates"), "Candidates that each rule removed."
    sections.append(Section("The search", words, columns=columns, rows=removed_rows(result)))
    return sections


def _names(plans: Sequence[Report]) -> list[str]:
    """Unique names: of two plans with equal degrees, the rest tells them apart."""
    parsed = [Plan(**report["plan"]) for report in plans]
    degrees = [plan.describe() for plan in parsed]
    names = []
    for rank, (words, plan) in enumerate(zip(degrees, parsed, strict=True), start=1):
        rest = f", {sharding(plan)}, micro {plan.micro_batch}, recompute {recomputed(plan)}"
        names.append(label(f"{rank}: {words}{rest if degrees.count(words) > 1 else ''}"))
    return names


def _time(plans: Sequence[Report]) -> Figure:
    parts = [grouped(report["time_breakdown_s"]) for report in plans]
    data = [
        _bar(plans, group, [part.get(group, 0.0) for part in parts], colour(group), "%{x:.4g} s")
        for group in GROUPS
        if any(part.get(group, 0.0) > 0 for part in parts)
    ]
    totals = {
        "type": "scatter",
        "mode": "text",
        "x": [report["step_time_s"] for report in plans],
        "y": list(range(len(plans))),
        "text": [f" {seconds(report['step_time_s'])}" for report in plans],
        "textposition": "middle right",
        "showlegend": False,
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
    longest = max(report["step_time_s"] for report in plans)
    return {"data": [*data, totals], "layout": _bars(plans, "seconds", range=[0, 1.12 * longest])}


def _memory(plans: Sequence[Report], capacity: float, usable: float) -> Figure:
    fullest = [max(report["memory"]["stages"], key=lambda stage: stage["total_bytes"]) for report in plans]
    names = [name for name in fullest[0]["parts_bytes"] if any(each["parts_bytes"][name] for each in fullest)]
    data = [
        _bar(plans, name, [each["parts_bytes"][name] / 2**30 for each in fullest], shade, "%{x:.1f} GiB")
        for name, shade in zip(names, _shades(len(names)), strict=True)
    ]
    largest = max(capacity, *(each["total_bytes"] for each in fullest)) / 2**30
    bars = _bars(plans, "GiB", range=[0, 1.03 * largest])
    lines = [_line(capacity, "dash"), *([_line(usable, "dot")] if usable < capacity else [])]
    return {"data": data, "layout": {**bars, "shapes": lines}}


def _shades(count: int) -> list[str]:
    return [MEMORY_COLOURS[index % len(MEMORY_COLOURS)] for index in range(count)]


def _bar(plans: Sequence[Report], name: str, values: list[float], shade: str, hover: str) -> dict[str, Any]:
    """One part of every plan's bar."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(range(len(plans))),
        "x": values,
        "marker": {"color": shade},
        "customdata": _names(plans),
        "hovertemplate": f"%{{customdata}}<br>{name}: {hover}<extra></extra>",
    }


def _bars(plans: Sequence[Report], unit: str, **x: Any) -> dict[str, Any]:
    ticks = {"tickvals": list(range(len(plans))), "ticktext": _names(plans)}
    return layout(
        barmode="stack",
        bargap=0.25,
        height=150 + 30 * len(plans),
        xaxis=axis(unit, **x),
        yaxis=axis(autorange="reversed", showgrid=False, **ticks),
    )


def _line(bytes_: float, dash: str) -> dict[str, Any]:
    return line_at(bytes_ / 2**30, dash=dash, color=LIMIT, width=1.5)
