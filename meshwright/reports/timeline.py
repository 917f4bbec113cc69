"""A step on the event engine: work of every simulated rank, and traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, table
from meshwright.reports.units import gibibytes, percent, scaled, seconds, signed_percent
from simulator.engine import Stream, Timeline
from simulator.training.step_graph.streams import COMPUTE, STREAMS

SHOWN_RANKS = 16


Traffic = Mapping[str, Mapping[str, float]]
"""Bytes that a device sends in a step, by level of links and kind of communication."""


def describe_run(timeline: Timeline, analytic_step_s: float | None, traffic: Traffic) -> dict[str, Any]:
    """A run with documented keys; a simulated rank stands for all equal ranks."""
    return {
        "step_time_s": timeline.period,
        "analytic_step_time_s": analytic_step_s,
        "idle_share": timeline.bubble_share,
        "tasks": len(timeline.graph),
        "ranks": [
            {
                "rank": rank,
                "busy_s": _busy(timeline, rank),
                "peak_memory_bytes": timeline.peak_memory(rank),
            }
            for rank in range(timeline.ranks)
        ],
        "traffic_bytes": {level: dict(kinds) for level, kinds in traffic.items()},
    }


def _busy(timeline: Timeline, rank: int) -> dict[str, float]:
    busy = {stream.name: timeline.busy(rank, stream) for stream in STREAMS}
    return {stream: value for stream, value in busy.items() if value}


def run_tables(timeline: Timeline, analytic_step_s: float | None, traffic: Traffic) -> list[Table]:
    """A run for people."""
    words = {"step": f"{seconds(timeline.period)}, {len(timeline.graph):,} tasks"}
    if analytic_step_s is not None:
        gap = signed_percent(timeline.period / analytic_step_s - 1)
        words["analytic"] = f"{seconds(analytic_step_s)}; the engine is {gap} off it"
    words["idle"] = f"{percent(timeline.bubble_share)} of the compute streams' time, in transfers and bubbles"
    sent = {level: sum(kinds.values()) for level, kinds in traffic.items()}
    words["traffic"] = ", ".join(f"{level} {scaled(size, 'B')}" for level, size in sent.items() if size)
    streams = [
        stream for stream in STREAMS if any(timeline.busy(rank, stream) for rank in range(timeline.ranks))
    ]
    headings = ["rank", *(stream.name for stream in streams), f"{COMPUTE.name} idle", "peak memory"]
    rows = [_rank(timeline, rank, streams) for rank in range(timeline.ranks)]
    if len(rows) > SHOWN_RANKS:
        half = SHOWN_RANKS // 2
        rows = [*rows[:half], ["..."] * len(headings), *rows[-half:]]
    busy_table = table(headings, rows, "Busy seconds of each stream, and memory at its fullest")
    return [facts({name: value for name, value in words.items() if value}, "On the event engine"), busy_table]


def _rank(timeline: Timeline, rank: int, streams: list[Stream]) -> list[str]:
    busy = [timeline.busy(rank, stream) for stream in streams]
    idle = 1 - timeline.busy(rank) / timeline.period
    return [str(rank), *map(seconds, busy), percent(idle), gibibytes(timeline.peak_memory(rank))]
