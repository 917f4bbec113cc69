"""A training step as a task graph for the event engine."""

from __future__ import annotations

from collections.abc import Callable

from simulator.engine import Clock, Timeline, collector_paused
from simulator.training.step_graph.expand import expand
from simulator.training.step_graph.step import (
    Attached,
    ChunkWork,
    OutputWork,
    Replicas,
    StepProgram,
    StreamWork,
)

__all__ = ["Attached", "ChunkWork", "OutputWork", "Replicas", "StepProgram", "StreamWork", "run"]


WATCHED = 100
"""Tasks, spread over the graph, whose ends are counted for progress."""


def run(program: StepProgram, progress: Callable[[float], None] | None = None) -> Timeline:
    """Run one step.

    Args:
        program: the work of every rank.
        progress: called with the finished share of the tasks.

    Raises:
        InputError: the schedule cannot run with these numbers, or its order deadlocks.
    """
    with collector_paused():
        graph = expand(program)
        clock = Clock(graph, program.contention)
        if progress is not None:
            _watch(clock, len(graph), progress)
        starts, ends = clock.run()
    return Timeline(graph, starts, ends, program.static)


def _watch(clock: Clock, tasks: int, progress: Callable[[float], None]) -> None:
    watched = range(0, tasks, max(tasks // WATCHED, 1))
    finished = iter(range(1, len(watched) + 1))
    for task in watched:
        event = clock.ended(task)
        event.callbacks.append(lambda _: progress(next(finished) / len(watched)))  # type: ignore[union-attr]
