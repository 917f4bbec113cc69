"""A run of weeks as an HTML page: calendar, waterfall, finish, period and size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meshwright.pages.page import Figure, Page, Section, axis, figure_of, line_at
from meshwright.reports.plan_evidence import short_runs
from meshwright.reports.run_bands import days_band, in_proportion
from meshwright.reports.runs import goodput_at, run_facts, states
from meshwright.reports.units import percent
from planner.runs import PlannedRun
from simulator.faults import Exposed
from simulator.runs.events import replicate

DAY = 86400.0

COLOURS = {
    "productive": "#2f855a",
    "lost work": "#c53030",
    "checkpoint": "#d69e2e",
    "stragglers": "#805ad5",
    "fewer devices": "#b794f4",
    "detect": "#2b6cb0",
    "locate": "#3182ce",
    "replace": "#4299e1",
    "initialise": "#63b3ed",
    "load": "#90cdf4",
    "stall": "#2c5282",
    "waiting for spares": "#718096",
}
MOST_DAYS = 400
"""Days of the calendar; a longer run is drawn in as many equal slices."""


def run_page(title: str, run: PlannedRun) -> Page:
    """The page of one plan's run."""
    sections = [
        Section(
            "Calendar",
            "One replication, day by day: hours that make progress, and where the others go. Training of "
            "a day whose work is lost later counts as productive here.",
            _calendar(run),
        ),
    ]
    if run.outcome.goodput < 1:
        sections.append(
            Section(
                "From wall time to progress",
                "Mean over all replications: the share of the wall time that each state takes.",
                _waterfall(run),
            )
        )
    if len(run.outcome.replications) > 1:
        sections.append(
            Section(
                "When it finishes",
                "Wall time of each replication; lines mark p10, p50 and p90.",
                _finish(run),
            )
        )
    sections += [
        Section(
            "Goodput over the period of checkpoints",
            "Closed form; the point is the period of this run.",
            _over_period(run),
        ),
        Section(
            "Goodput and progress over the size of the job",
            "Closed form with the step time, recovery and period of this run: goodput, and progress over "
            "that of this size. Where progress falls, more devices stop to help.",
            _over_size(run),
        ),
        Section(
            "States",
            "Mean hours of a run.",
            None,
            ["state", "hours", "share"],
            [[state, f"{took / 3600:.2f}", percent(share, 2)] for state, took, share in states(run)],
        ),
    ]
    drawn = [section for section in sections if section.figure is None or section.figure["data"]]
    fact_words = run_facts(run)
    words = {"closed form lacks": "What the closed form lacks", "assumed": "What the run assumes"}
    drawn += [Section(heading, fact_words.pop(name)) for name, heading in words.items() if name in fact_words]
    rows = [[name, value] for name, value in fact_words.items()]
    drawn.insert(0, Section("The run", "", columns=("", ""), rows=rows, words_in=(0, 1)))
    return Page(title, _heads(run), drawn)


def _heads(run: PlannedRun) -> dict[str, str]:
    """Head figures: what a run reaches, with its band, and what that rests on."""
    days, confidence = days_band(run), run.prediction.confidence
    step = f"{run.outcome.inputs.step_s:.3g} s"
    heads = {
        "finish": days.words("d"),
        "cost": in_proportion(run.usd, days).money() if math.isfinite(run.usd) else "without bound",
        "energy": in_proportion(run.kwh / 1000, days).words("MWh"),
        "goodput": percent(run.outcome.goodput),
        "step": step if confidence is None else f"{step} ± {percent(float(confidence.half_width[0]), 0)}",
        "evidence": short_runs(confidence) or "timed by the engine",
    }
    if not math.isfinite(run.usd):
        del heads["energy"]
    return heads


def _calendar(run: PlannedRun) -> Figure:
    """Hours of each day by state, of replication 0."""
    replica = replicate(run.outcome.inputs, run.case.request.question.seed, 0, traced=True)
    days = min(max(int(np.ceil(replica.wall_s / DAY)), 1), MOST_DAYS)
    slice_s = max(replica.wall_s / days, DAY if days < MOST_DAYS else 0.0)
    hours: dict[str, np.ndarray] = {}
    for state, start, end in replica.segments:
        row = hours.setdefault(state, np.zeros(days))
        first, last = int(start // slice_s), min(int(end // slice_s), days - 1)
        for day in range(first, last + 1):
            row[min(day, days - 1)] += (
                max(min(end, (day + 1) * slice_s) - max(start, day * slice_s), 0.0) / 3600
            )
    if replica.seconds["checkpoint"] and "productive" in hours:
        share = replica.seconds["checkpoint"] / (hours["productive"].sum() * 3600)
        hours["checkpoint"] = hours["productive"] * share
        hours["productive"] = hours["productive"] * (1 - share)
    starts = [round((day + 0.5) * slice_s / DAY, 3) for day in range(days)]
    data: list[Any] = [
        {"type": "bar", "name": state, "x": starts, "y": [round(float(v), 4) for v in hours[state]]}
        | {"marker": {"color": colour}, "width": slice_s / DAY * 0.95}
        for state, colour in COLOURS.items()
        if state in hours
    ]
    return figure_of(data, barmode="stack", height=380, xaxis=axis("day"), yaxis=axis("hours"))


def _waterfall(run: PlannedRun) -> Figure:
    """The wall time less every loss."""
    rows = states(run)
    left, data = 1.0, []
    for state, _, share in [row for row in rows if row[0] != "productive"]:
        left -= share
        data.append((state, left, share))
    names = ["wall time", *(state for state, _, _ in data), "progress"]
    base = [0.0, *(round(100 * low, 4) for _, low, _ in data), 0.0]
    high = [100.0, *(round(100 * share, 4) for _, _, share in data), round(100 * left, 4)]
    colours = ["#a0aec0", *(COLOURS[state] for state, _, _ in data), COLOURS["productive"]]
    bars = {"type": "bar", "x": names, "base": base, "y": high, "marker": {"color": colours}}
    words = {"text": [f"{value:.2f}" for value in high], "textposition": "outside", "cliponaxis": False}
    floor = max(100 * left - 10, 0.0)
    return figure_of(
        [bars | words],
        height=400,
        margin={"l": 70, "r": 20, "t": 30, "b": 60},
        xaxis=axis(),
        yaxis=axis("percent of wall time", range=[floor, 102]),
        showlegend=False,
    )


BINS = 24
"""Bars of the distribution of finishes."""


def _finish(run: PlannedRun) -> Figure:
    days = np.sort(run.outcome.wall_s[np.isfinite(run.outcome.wall_s)]) / DAY
    if not len(days):
        return figure_of([])
    lines = [
        line_at(at, dash="dot", color="#4a5568")
        for at in (run.outcome.quantile(share) / DAY for share in (0.1, 0.5, 0.9))
        if np.isfinite(at)
    ]
    counts, edges = np.histogram(days, bins=BINS)
    middles = [round(float(day), 5) for day in (edges[:-1] + edges[1:]) / 2]
    return figure_of(
        [{"type": "bar", "x": middles, "y": counts.tolist(), "marker": {"color": COLOURS["replace"]}}],
        height=320,
        shapes=lines,
        xaxis=axis("days"),
        yaxis=axis("replications"),
        bargap=0.05,
    )


def _over_period(run: PlannedRun) -> Figure:
    inputs = run.outcome.inputs
    if not inputs.faults.processes or not np.isfinite(inputs.period_s):
        return figure_of([])
    rate = inputs.faults.rate(inputs.job)
    periods = inputs.period_s * np.geomspace(0.05, 20, 81)
    shares = 100 * np.maximum(goodput_at(run, rate, periods), 0.0)
    here = float(100 * goodput_at(run, rate, inputs.period_s))
    line = {"type": "scatter", "mode": "lines", "name": "closed form", "line": {"color": COLOURS["replace"]}}
    point = {
        "type": "scatter",
        "mode": "markers",
        "name": "this run",
        "marker": {"size": 10, "color": "#c53030"},
    }
    return figure_of(
        [
            line
            | {"x": [round(float(p) / 60, 5) for p in periods], "y": [round(float(s), 4) for s in shares]},
            point | {"x": [inputs.period_s / 60], "y": [here]},
        ],
        height=340,
        xaxis=axis("minutes of work between saves", type="log", tickformat="~g"),
        yaxis=axis("goodput, percent"),
    )


def _over_size(run: PlannedRun) -> Figure:
    inputs = run.outcome.inputs
    if not inputs.faults.processes or inputs.dropped:
        return figure_of([])
    width = inputs.job.devices_per_node
    nodes = np.unique(np.rint(inputs.job.nodes * np.geomspace(1 / 16, 16, 33)).astype(int).clip(1))
    if any(not each.repeats for each in inputs.faults.processes):
        nodes = nodes[nodes <= inputs.job.nodes]
    rates = [inputs.faults.rate(Exposed(int(count), width)) for count in nodes]
    shares = np.array([float(goodput_at(run, rate, inputs.period_s)) for rate in rates])
    here = float(goodput_at(run, inputs.faults.rate(inputs.job), inputs.period_s))
    if not here > 0:
        return figure_of([])
    gained = shares * nodes / (here * inputs.job.nodes)
    devices = [int(count) * width for count in nodes]
    line = {"type": "scatter", "mode": "lines+markers"}
    return figure_of(
        [
            line
            | {"name": "goodput, percent", "x": devices, "y": [round(100 * float(s), 4) for s in shares]},
            line
            | {
                "name": "progress over this size",
                "x": devices,
                "y": [round(float(g), 4) for g in gained],
                "yaxis": "y2",
            },
        ],
        height=360,
        xaxis=axis("devices", type="log", tickformat=",d"),
        yaxis=axis("goodput, percent"),
        yaxis2=axis("times", overlaying="y", side="right", showgrid=False),
        margin={"l": 70, "r": 70, "t": 30, "b": 45},
    )
