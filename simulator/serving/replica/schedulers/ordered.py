"""A queue in an order of the policy's own, sorted again when sequences have joined it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from pydantic import PrivateAttr

from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.chunked import Chunked
from simulator.serving.replica.sequence import Sequence


class Ordered(Chunked):
    """`Chunked` whose queue is in another order than that of arrival. Running sequences stay."""

    _sorted: dict[int, int] = PrivateAttr(default_factory=dict)
    """Queue length of each rank when it was last sorted."""

    @abstractmethod
    def order(self, waiting: list[Sequence]) -> Iterable[Sequence]:
        """The sequences of a queue, the next one first."""

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        waiting, key = batcher.waiting, id(batcher.waiting)
        if len(waiting) > max(self._sorted.get(key, 0), 1):
            ordered = list(self.order(list(waiting)))
            waiting.clear()
            waiting.extend(ordered)
        super().fill(batcher, step, now)
        self._sorted[key] = len(waiting)

    def waits(self, batcher: Batcher) -> bool:
        """Any arrival may come to the head of the queue."""
        return False
