"""Urgent requests first; they preempt running requests if necessary."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import ClassVar

from simulator.serving.replica.admission import admit, go_on
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.base import Scheduler
from simulator.serving.replica.sequence import Sequence


class Priority(Scheduler):
    """Chunked scheduling whose queue is in the order of priority (0 is the most urgent), then of arrival.

    Where a waiting sequence finds no slot or blocks and a running one is less urgent, the least urgent and
    last admitted of those is preempted.
    """

    name: ClassVar[str] = "priority"
    rule: ClassVar[str] = "as chunked, urgent first, preempting less urgent ones"
    source: ClassVar[str] = "vLLM 1 --scheduling-policy priority; FastSwitch, arXiv 2411.18424"

    # Cached properties: private attributes of pydantic are read ten times as slowly.
    @cached_property
    def _sorted(self) -> dict[int, tuple[Sequence, int]]:
        """Of each rank's queue that is in order: its last sequence, and its length."""
        return {}

    @cached_property
    def _stuck(self) -> dict[int, Sequence]:
        """Head of each queue that found nothing less urgent; until it is admitted nothing else is."""
        return {}

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        waiting = batcher.waiting
        if len(waiting) > 1 and not self._in_order(waiting):
            urgent_first = sorted(waiting, key=lambda sequence: (sequence.priority, sequence.queued_s))
            waiting.clear()
            waiting.extend(urgent_first)
        if waiting:
            self._make_room(batcher, step)
        batcher.decode(step)
        tokens = batcher.left(step)
        if batcher.prefilling:
            tokens = go_on(batcher, step, tokens)
        if waiting:
            admit(batcher, step, tokens, now, not batcher.chunks_prompts)
        key, ordered, stuck = id(waiting), self._sorted, self._stuck
        ordered.pop(key, None)
        if waiting and not step.preempted:
            ordered[key] = waiting[-1], len(waiting)
        if key in stuck and not (waiting and stuck[key] is waiting[0]):
            del stuck[key]

    def _in_order(self, waiting: deque[Sequence]) -> bool:
        """Whether the queue is as the last fill left it, but for sequences that are gone."""
        last, length = self._sorted.get(id(waiting), (None, 0))
        return waiting[-1] is last and len(waiting) <= length

    def waits(self, batcher: Batcher) -> bool:
        """Any arrival may be more urgent than a running sequence."""
        return False

    def _need(self, batcher: Batcher, head: Sequence) -> int:
        """Blocks for which less urgent sequences are preempted."""
        return batcher.kv.blocks(head.target - batcher.kv.match(head))

    def _make_room(self, batcher: Batcher, step: PlannedStep) -> None:
        """Preempt less urgent sequences until the head of the queue has a slot and blocks."""
        head = batcher.waiting[0]
        need = self._need(batcher, head)
        while batcher.running >= batcher.slots or need > batcher.kv.free:
            if self._stuck.get(id(batcher.waiting)) is head:
                return
            running = [
                sequence
                for sequence in batcher.admitted
                if sequence.priority > head.priority
                and (sequence.end_step > batcher.steps or sequence in batcher.prefilling)
            ]
            if not running:
                self._stuck[id(batcher.waiting)] = head
                return
            victim = max(running, key=lambda sequence: (sequence.priority, sequence.scheduled_s))
            batcher.admitted.remove(victim)
            batcher.preempt_sequence(step, victim)
            batcher.waiting.popleft()
            batcher.waiting.append(victim)
