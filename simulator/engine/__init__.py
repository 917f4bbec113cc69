"""The event engine: a training step, task by task."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from simulator.engine.clock import Clock, Contention
from simulator.engine.expand import expand
from simulator.engine.step import Attached, ChunkWork, OutputWork, Replicas, Segment, StepProgram
from simulator.engine.timeline import Timeline

__all__ = [
    "Attached",
    "ChunkWork",
    "Contention",
    "OutputWork",
    "Replicas",
    "Segment",
    "StepProgram",
    "Timeline",
    "collector_paused",
    "run",
]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let Python's garbage collector rest: a step makes a million tuples, none of them in a circle."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def run(program: StepProgram) -> Timeline:
    """Run one step.

    Raises:
        InputError: the schedule cannot run with these numbers, or its order deadlocks.
    """
    with collector_paused():
        graph = expand(program)
        starts, ends = Clock(graph, program.contention).run()
    return Timeline(graph, starts, ends, program.static)
