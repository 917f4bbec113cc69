"""Urgent requests first; they preempt running requests if necessary."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.admission import admit, go_on
from simulator.serving.replica.batcher import Batcher, PlannedStep
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

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        waiting = batcher.waiting
        if len(waiting) > 1:
            ordered = sorted(waiting, key=lambda one: (one.priority, one.queued_s))
            waiting.clear()
            waiting.extend(ordered)
        if waiting:
            self._make_room(batcher, step)
        batcher.decode(step)
        tokens = batcher.budget - step.decodes
        if batcher.prefilling:
            tokens = go_on(batcher, step, tokens)
        if waiting:
            admit(batcher, step, tokens, now, not batcher.chunks_prompts)

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
            running = [
                one
                for one in batcher.admitted
                if one.priority > head.priority
                and (one.end_step > batcher.steps or one in batcher.prefilling)
            ]
            if not running:
                return
            victim = max(running, key=lambda one: (one.priority, one.scheduled_s))
            batcher.admitted.remove(victim)
            batcher.preempt_sequence(step, victim)
            batcher.waiting.popleft()
            batcher.waiting.append(victim)
