"""The sequence whose part of its program's deadline ends first comes first."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PrivateAttr

from simulator.serving.replica.batcher import Batcher, PlannedStep
from simulator.serving.replica.schedulers.chunked import Chunked


class Urgency(Chunked):
    """`Chunked` whose queue is in the order of `Request.due_s`, then of arrival.

    A program gives each of its stages a part of the time left (HexGen-Text2SQL's budget by stage). Running
    sequences are not preempted. Without deadlines all are due at no time: first come, first served.
    """

    name: ClassVar[str] = "urgency"
    rule: ClassVar[str] = "as chunked, the sequence whose stage of a program is due first comes first"
    source: ClassVar[str] = "Peng et al., HexGen-Text2SQL, arXiv 2505.05286 (local priority queue)"
    _sorted: dict[int, int] = PrivateAttr(default_factory=dict)
    """Queue length of each rank when it was last sorted."""

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        waiting, key = batcher.waiting, id(batcher.waiting)
        if len(waiting) > max(self._sorted.get(key, 0), 1):
            ordered = sorted(waiting, key=lambda one: one.request.due_s)
            waiting.clear()
            waiting.extend(ordered)
        super().fill(batcher, step, now)
        self._sorted[key] = len(waiting)

    def waits(self, batcher: Batcher) -> bool:
        """Any arrival may come to the head of the queue."""
        return False
