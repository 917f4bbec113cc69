"""A training step as a task graph for the event engine."""

from __future__ import annotations

from simulator.engine import Clock, Timeline, collector_paused
from simulator.training.step_graph.expand import expand
from simulator.training.step_graph.step import (
    Attached,
    ChunkWork,
    OutputWork,
    Replicas,
    Segment,
    StepProgram,
)

__all__ = ["Attached", "ChunkWork", "OutputWork", "Replicas", "Segment", "StepProgram", "run"]


def run(program: StepProgram) -> Timeline:
    """Run one step.

    Raises:
        InputError: the schedule cannot run with these numbers, or its order deadlocks.
    """
    with collector_paused():
        graph = expand(program)
        starts, ends = Clock(graph, program.contention).run()
    return Timeline(graph, starts, ends, program.static)
