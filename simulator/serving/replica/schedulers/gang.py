"""Requests of one program run together, the oldest program first."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PrivateAttr

from simulator.serving.replica.batcher import Batcher, PlannedStep
from simulator.serving.replica.schedulers.chunked import Chunked


class Gang(Chunked):
    """`Chunked` whose queue is in the order in which programs began.

    Later calls of a program pass the first calls of younger ones, and its parallel calls stay together.
    Single requests are in the order of arrival.
    """

    name: ClassVar[str] = "gang"
    rule: ClassVar[str] = "as chunked, calls of one program together, the oldest program first"
    source: ClassVar[str] = "Fu et al., Dynasor (Certaindex), arXiv 2412.20993 (gang scheduling)"
    _sorted: dict[int, int] = PrivateAttr(default_factory=dict)
    """Queue length of each rank when it was last sorted."""

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        waiting, key = batcher.waiting, id(batcher.waiting)
        if len(waiting) > max(self._sorted.get(key, 0), 1):
            ordered = sorted(waiting, key=lambda one: one.request.program)
            waiting.clear()
            waiting.extend(ordered)
        super().fill(batcher, step, now)
        self._sorted[key] = len(waiting)

    def waits(self, batcher: Batcher) -> bool:
        """Any arrival may come to the head of the queue."""
        return False
