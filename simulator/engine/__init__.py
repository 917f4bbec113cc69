"""The event core: a clock, lanes of tasks, flows on links, and the record of a run. It knows no workload."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from simulator.engine.clock import Clock, Contention
from simulator.engine.graph import NONE, Flow, Stream, TaskGraph
from simulator.engine.timeline import Timeline

__all__ = ["NONE", "Clock", "Contention", "Flow", "Stream", "TaskGraph", "Timeline", "collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable GC: a step allocates about 1M tuples and creates no reference cycles."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
