"""Priorities that change while requests run, so that sequences are preempted and come back."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from pydantic import Field

from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.priority import Priority
from simulator.serving.replica.sequence import Sequence

ODD = 2654435761
"""Multiplier of a multiplicative hash (Knuth, volume 3, section 6.4)."""


class ChangingPriority(Priority):
    """`Priority` whose priorities are drawn again every ``every`` seconds, for each request on its own.

    With ``preemption: swap`` every change copies KV to the host and back; ``swap_copies: groups``,
    ``swap_asynchronous`` and ``swap_keeps`` are FastSwitch's answers.
    """

    name: ClassVar[str] = "changing-priority"
    rule: ClassVar[str] = "as priority, with priorities drawn again every so many seconds"
    source: ClassVar[str] = "Shen et al., FastSwitch, arXiv 2411.18424 (priority update traces)"
    every: float = Field(default=5.0, ge=1e-3, le=1e6, description="seconds between two draws")
    levels: int = Field(default=4, ge=2, le=64, description="priorities that are drawn")

    @cached_property
    def _drawn(self) -> dict[int, tuple[int, set[int]]]:
        """Of each rank: the number of the last draw, and serials of the sequences that have theirs."""
        return {}

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        epoch, key = int(now / self.every), id(batcher)
        before, drawn = self._drawn.get(key, (-1, set()))
        waiting = batcher.waiting
        if waiting and self._in_order(waiting):
            coming = []
        else:
            coming = [sequence for sequence in waiting if sequence.request.serial not in drawn]
        if epoch != before:
            self._sorted.pop(id(batcher.waiting), None)
            self._stuck.pop(id(batcher.waiting), None)
            coming, drawn = [*batcher.waiting, *batcher.admitted], set()
            self._drawn[key] = epoch, drawn
        for sequence in coming:
            sequence.priority = (
                (sequence.request.serial * 7919 + epoch * 104729) * ODD % 2**32 >> 16
            ) % self.levels
            drawn.add(sequence.request.serial)
        super().fill(batcher, step, now)
        if batcher.waiting and step.decodes:
            if self._stuck.get(id(batcher.waiting)) is batcher.waiting[0]:
                step.until_s = (epoch + 1) * self.every
            else:
                # The head may be admitted in any step: no stretch of equal steps.
                step.preempted = True

    def _need(self, batcher: Batcher, head: Sequence) -> int:
        """All blocks of the sequence: those of a swapped one are taken again."""
        return batcher.kv.blocks(head.target)
