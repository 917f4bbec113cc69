"""Where the step of a rank went: work by kind, communication that nothing hid, and waiting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.engine.graph import (
    COMPUTE,
    CONTEXT,
    DATA,
    EXPERT,
    FROM_HOST,
    OUTPUT,
    PIPELINE,
    TENSOR,
    TO_HOST,
)
from simulator.engine.timeline import Timeline
from simulator.training.step_graph.rank import NAMES

BUBBLE = "bubble"
GRADIENTS, PARAMETERS = "gradients", "parameters"
PASSES = frozenset(NAMES.values())
"""Names of tasks that are whole passes."""

SHOWN = (TENSOR, CONTEXT, EXPERT, OUTPUT, PIPELINE, GRADIENTS, PARAMETERS, TO_HOST, FROM_HOST)
"""Communication by kind; a moment in which a rank waits while several run counts for the first of them."""


def account(timeline: Timeline, rank: int) -> dict[str, float]:
    """Seconds of the step of one rank by part, under the names of the analytic breakdown.

    Parts are kinds of kernels ("compute" where passes ran as one task each), "recompute", what runs once a
    step, communication while no kernel ran, and "bubble": time in which the rank had nothing to do. They
    add up to the step.
    """
    parts: dict[str, float] = {}
    tasks = timeline.tasks(rank, COMPUTE)
    for name, seconds in _by_name(timeline, tasks).items():
        part = _part(name)
        parts[part] = parts.get(part, 0.0) + seconds
    busy = {COMPUTE: tasks, **{kind: _communication(timeline, rank, kind) for kind in SHOWN}}
    edges = np.unique(
        np.concatenate([[0.0, timeline.seconds], *(_ends(timeline, each) for each in busy.values())])
    )
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    free = ~_running(timeline, tasks, middles)
    for kind in SHOWN:
        shown = free & _running(timeline, busy[kind], middles)
        if shown.any():
            parts[kind] = float(widths[shown].sum())
            free &= ~shown
    parts[BUBBLE] = float(widths[free].sum())
    return parts


def communicated(timeline: Timeline, rank: int) -> dict[str, float]:
    """Seconds for which each kind of communication of one rank runs, beside kernels or not."""
    found = {}
    for kind in SHOWN:
        tasks = _communication(timeline, rank, kind)
        if len(tasks):
            found[kind] = float((timeline.ends[tasks] - timeline.starts[tasks]).sum())
    return found


def busiest(timeline: Timeline) -> int:
    """The rank that computes longest."""
    return max(range(timeline.ranks), key=lambda rank: timeline.busy(rank))


def _by_name(timeline: Timeline, tasks: NDArray[np.int64]) -> dict[str, float]:
    found: dict[str, float] = {}
    spans = (timeline.ends[tasks] - timeline.starts[tasks]).tolist()
    for task, seconds in zip(tasks.tolist(), spans, strict=True):
        name = timeline.graph.name[task]
        found[name] = found.get(name, 0.0) + seconds
    return found


def _part(name: str) -> str:
    """The part of the breakdown that a task on the compute stream belongs to."""
    words = name.split()
    if "recompute" in words:
        return "recompute"
    if words[0] == "output":
        return "output_layer"
    return COMPUTE if name in PASSES else words[-1]


def _communication(timeline: Timeline, rank: int, kind: str) -> NDArray[np.int64]:
    """Tasks of one kind of communication; the data-parallel stream carries two."""
    if kind not in (GRADIENTS, PARAMETERS):
        return timeline.tasks(rank, kind)
    tasks = timeline.tasks(rank, DATA)
    gathers = np.array(
        [timeline.graph.name[task].startswith("gather") for task in tasks.tolist()], dtype=bool
    )
    return tasks[gathers if kind == PARAMETERS else ~gathers]


def _ends(timeline: Timeline, tasks: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.concatenate([timeline.starts[tasks], timeline.ends[tasks]])


def _running(timeline: Timeline, tasks: NDArray[np.int64], moments: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether any of the tasks runs at each moment."""
    begun = np.searchsorted(np.sort(timeline.starts[tasks]), moments, side="right")
    ended = np.searchsorted(np.sort(timeline.ends[tasks]), moments, side="right")
    return begun > ended
