"""A simulated step as an HTML page: pipeline, memory, time by part, traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.pages.gantt import gantt, shown_ranks
from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label
from meshwright.pages.sections import GROUP_SHADES, stacked_bars
from meshwright.reports.parts import grouped
from meshwright.reports.plan_evidence import short_runs
from meshwright.reports.plans import recomputed, sharding
from meshwright.reports.units import counted, gibibytes, percent, seconds, signed_percent
from planner.training.prediction import Prediction
from simulator.engine.timeline import Timeline
from simulator.plan import Plan
from simulator.training.step_graph.account import account
from simulator.training.traffic import link_bandwidth, step_traffic

MOMENTS = 1500
"""Maximum number of intervals of a rank's memory curve; the maximum of an interval is drawn."""
POINTS = 20_000
"""Maximum number of points of all memory curves, a bound on the bytes of the page."""


def step_page(title: str, prediction: Prediction, timeline: Timeline, analytic_step_s: float | None) -> Page:
    """The page of one plan's step.

    Args:
        title: of the page; shown unchanged.
        prediction: of the plan, for the figures at the top.
        timeline: the plan's run on the event engine.
        analytic_step_s: the analytic step time, if the schedule has a closed form.
    """
    plan = prediction.plans.plan(0)
    names = rank_names(plan, timeline.ranks)
    chart, window = gantt(timeline, names)
    words = (
        "What each pipeline rank computes, with the number of the micro batch where there is room, "
        "and below it what it sends or copies."
    )
    if not window.complete:
        words += f" The first and last {seconds(window.length)} of {seconds(timeline.seconds)} are drawn."
    sections = [
        Section("The step, rank by rank", words, chart),
        Section(
            "Where the step's time went",
            "Kernels by kind, communication while no kernel ran, and waiting, for each pipeline rank.",
            _time(timeline, names),
        ),
        Section(
            "Memory over time",
            "Bytes that one device of each pipeline rank holds.",
            _memory(timeline, names, prediction.setting.cluster.device.memory_bytes),
        ),
        _traffic(prediction, plan, timeline.period),
    ]
    return Page(title or "A training step", _facts(prediction, plan, timeline, analytic_step_s), sections)


def rank_names(plan: Plan, ranks: int) -> list[str]:
    """Names of the simulated ranks; a rank stands for all devices of its pipeline stage."""
    copies = ranks // plan.pipeline if ranks % plan.pipeline == 0 else 1
    if copies == 1:
        return [f"rank {rank}" for rank in range(ranks)]
    return [f"replicas {rank // plan.pipeline}, rank {rank % plan.pipeline}" for rank in range(ranks)]


def _facts(
    prediction: Prediction, plan: Plan, timeline: Timeline, analytic_step_s: float | None
) -> dict[str, str]:
    setting = prediction.setting
    training, cluster = setting.training, setting.cluster
    peak = max(timeline.peak_memory(rank) for rank in range(timeline.ranks))
    # The page shows the engine's step; figures of merit are the prediction's, scaled to it.
    metrics, pace = prediction.metrics, float(prediction.step.time[0]) / timeline.period
    there, doubt = cluster.device.memory_bytes, ": does not fit"
    facts = {
        "model": setting.model.name,
        "cluster": f"{cluster.devices:,} x {cluster.device.name} ({cluster.name})",
        "plan": f"{plan.describe()}, micro batch {plan.micro_batch}",
        "schedule": f"{plan.schedule}, recompute {recomputed(plan)}, sharding {sharding(plan)}",
        "step": f"{seconds(timeline.period)}{_band(prediction)} for {counted(training.tokens)} tokens",
        "evidence": short_runs(prediction.confidence) or "timed by the engine alone",
        "throughput": f"{pace * float(metrics.tokens_per_s_per_device[0]):,.0f} tokens/s/GPU, "
        f"MFU {percent(pace * float(metrics.model_flops_utilisation[0]))}",
        "memory at its fullest": f"{gibibytes(peak)} of {gibibytes(there)}" + (doubt if peak > there else ""),
        "no kernel runs in": f"{percent(timeline.bubble_share)} of the step",
    }
    if analytic_step_s is not None:
        gap = timeline.period / analytic_step_s - 1
        words = f"is {signed_percent(gap)} off it" if abs(gap) >= 5e-4 else "agrees"
        facts["analytic step"] = f"{seconds(analytic_step_s)}; the engine {words}"
    return facts


def _band(prediction: Prediction) -> str:
    """The 90 % band of the step, where its form is known."""
    confidence = prediction.confidence
    return "" if confidence is None else f" ± {percent(float(confidence.half_width[0]), 0)}"


def _time(timeline: Timeline, names: list[str]) -> Figure:
    ranks = shown_ranks(timeline.ranks)
    parts = [grouped(account(timeline, rank)) for rank in ranks]
    height = int(np.clip(130 + 26 * len(ranks), 240, 1500))
    rows, seconds_axis = [names[rank] for rank in ranks], axis("seconds", range=[0, timeline.seconds])
    return stacked_bars(rows, parts, GROUP_SHADES, height=height, xaxis=seconds_axis)


def _memory(timeline: Timeline, names: list[str], capacity: float) -> Figure:
    ranks = shown_ranks(timeline.ranks)
    largest = max(timeline.peak_memory(rank) for rank in ranks)
    data: list[dict[str, Any]] = []
    moments = min(MOMENTS, POINTS // len(ranks))
    for place, rank in enumerate(ranks):
        times, resident = fullest(*timeline.memory(rank), timeline.seconds, moments)
        evenly = {"x0": 0, "dx": timeline.seconds / moments}
        exactly = {"x": [float(f"{value:.6g}") for value in times.tolist()]}
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": names[rank],
                "y": [float(f"{value / 2**30:.4g}") for value in resident.tolist()],
                **(evenly if len(times) == moments + 1 else exactly),
                "line": {"shape": "hv", "width": 1.4, "color": _shade(place, len(ranks))},
                "hovertemplate": "%{y:.1f} GiB at %{x:.4g} s<extra>%{fullData.name}</extra>",
            }
        )
    limit = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": capacity / 2**30,
        "y1": capacity / 2**30,
        "line": {"dash": "dash", "color": "#c8374a", "width": 1.5},
        "label": {"text": "what the device has", "textposition": "start", "font": {"color": "#c8374a"}},
    }
    return figure_of(
        data,
        height=430,
        xaxis=axis("seconds", range=[0, timeline.seconds]),
        yaxis=axis("GiB", range=[0, 1.1 * max(largest, capacity) / 2**30]),
        shapes=[limit],
        legend={"orientation": "v", "x": 1.01, "y": 0.95, "yanchor": "top"},
    )


def fullest(
    times: NDArray[np.float64], resident: NDArray[np.float64], end: float, moments: int = MOMENTS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A step curve with a bounded number of steps; keeps every peak.

    Args:
        times: start of every step, ascending.
        resident: height of every step.
        end: end of the curve.
        moments: number of equal intervals of a curve with more than half as many steps.
    """
    if 2 * len(times) <= moments:
        return np.append(times, end), np.append(resident, resident[-1])
    slot = np.minimum((times / end * moments).astype(np.int64), moments - 1)
    first = np.flatnonzero(np.diff(slot, prepend=-1))
    last = np.append(first[1:], len(times)) - 1
    # Intervals without a step keep the height at which the interval before ended.
    at = np.searchsorted(slot[first], np.arange(moments), side="right") - 1
    heights = resident[last][at]
    before = np.concatenate(([resident[0]], resident[first[1:] - 1]))
    heights[slot[first]] = np.maximum(np.maximum.reduceat(resident, first), before)
    return np.linspace(0, end, moments + 1), np.append(heights, resident[-1])


def _shade(place: int, count: int) -> str:
    """From dark blue for the first rank to orange for the last."""
    ends = np.array([[26, 60, 110], [64, 160, 170], [240, 162, 2]])
    at = 2 * place / max(count - 1, 1)
    low = min(int(at), 1)
    red, green, blue = np.round(ends[low] + (at - low) * (ends[low + 1] - ends[low])).astype(int).tolist()
    return f"rgb({red},{green},{blue})"


def _traffic(prediction: Prediction, plan: Plan, step_s: float) -> Section:
    """Bytes of a step by level of links, and utilisation of the links."""
    setting = prediction.setting
    traffic, bandwidth = step_traffic(setting, plan), link_bandwidth(setting.cluster)
    by_kind = {level: grouped(kinds) for level, kinds in traffic.items()}
    names = [
        f"{label(level)}<br>{percent(sum(traffic[level].values()) / (bandwidth[level] * step_s))} busy"
        for level in traffic
    ]
    sent = [{group: bytes_ / 1e9 for group, bytes_ in kinds.items()} for kinds in by_kind.values()]
    of_step = axis("GB that a device sends in a step")
    chart = stacked_bars(names, sent, GROUP_SHADES, "GB", height=150 + 60 * len(names), xaxis=of_step)
    words = (
        "Bytes that one device of the slowest stage sends in a step over each level of links, and the share "
        "of what those links could carry in that time."
    )
    return Section("Traffic by level of links", words, chart)
