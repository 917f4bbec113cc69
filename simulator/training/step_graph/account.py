"""Breakdown of a rank's step: work by kind, exposed communication, and waiting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct
from simulator.engine.graph import NONE
from simulator.engine.timeline import Timeline
from simulator.training.step_graph.streams import COMMUNICATION

BUBBLE = "bubble"


def account(timeline: Timeline, rank: int) -> dict[str, float]:
    """Seconds of the step of one rank by part, under the names of the analytic breakdown.

    Parts are kinds of kernels ("compute" where passes ran as one task each), "recompute", what runs once a
    step, communication while no kernel ran, and "bubble": idle time of the rank. They add up to the step.
    """
    tasks = timeline.tasks(rank)
    parts = _by_part(timeline, tasks)
    busy = {BUBBLE: tasks, **_communication(timeline, rank)}
    edges = distinct(
        np.concatenate([[0.0, timeline.seconds], *(_ends(timeline, of_part) for of_part in busy.values())])
    )
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    free = ~_running(timeline, tasks, middles)
    for part in COMMUNICATION:
        exposed = free & _running(timeline, busy[part], middles)
        if exposed.any():
            parts[part] = float(widths[exposed].sum())
            free &= ~exposed
    parts[BUBBLE] = float(widths[free].sum())
    return parts


def communicated(timeline: Timeline, rank: int) -> dict[str, float]:
    """Seconds for which each kind of communication of one rank runs, beside kernels or not."""
    return {
        part: float((timeline.ends[tasks] - timeline.starts[tasks]).sum())
        for part, tasks in _communication(timeline, rank).items()
        if len(tasks)
    }


def busiest(timeline: Timeline) -> int:
    """The rank that computes longest."""
    return max(range(timeline.ranks), key=lambda rank: timeline.busy(rank))


def _by_part(timeline: Timeline, tasks: NDArray[np.int64]) -> dict[str, float]:
    """Seconds of tasks by part, in the order of the parts' first tasks."""
    seconds_of: dict[str, float] = {}
    spans = (timeline.ends[tasks] - timeline.starts[tasks]).tolist()
    parts = timeline.graph.parts
    for task, seconds in zip(tasks.tolist(), spans, strict=True):
        part = timeline.graph.part[task]
        name = parts[part] if part != NONE else ""
        seconds_of[name] = seconds_of.get(name, 0.0) + seconds
    return seconds_of


def _communication(timeline: Timeline, rank: int) -> dict[str, NDArray[np.int64]]:
    """Tasks of a rank that communicate, by part."""
    graph = timeline.graph
    by_stream = [timeline.tasks(rank, stream) for stream in timeline.streams if stream.does != "compute"]
    tasks = np.concatenate([*by_stream, np.zeros(0, np.int64)])
    parts = np.array([graph.part[task] for task in tasks.tolist()], dtype=np.int64)
    return {name: tasks[parts == graph.part_of(name)] for name in COMMUNICATION}


def _ends(timeline: Timeline, tasks: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.concatenate([timeline.starts[tasks], timeline.ends[tasks]])


def _running(timeline: Timeline, tasks: NDArray[np.int64], moments: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether any of the tasks runs at each moment."""
    begun = np.searchsorted(np.sort(timeline.starts[tasks]), moments, side="right")
    ended = np.searchsorted(np.sort(timeline.ends[tasks]), moments, side="right")
    return begun > ended
