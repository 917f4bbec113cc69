"""Prompts in steps of their own, some decode steps apart, admitted by the peak of what all will hold."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.base import Scheduler
from simulator.serving.replica.sequence import Sequence


class SpacedPrefill(Scheduler):
    """As prefill-first, but a step of prompts follows the last one after at least ``every`` decode steps.

    A prompt is admitted if the tokens of all running sequences, each until its end, never exceed KV. The
    server knows how long outputs are. Stages of a pipeline share KV, whose other micro batches it leaves out.
    """

    name: ClassVar[str] = "spaced-prefill"
    rule: ClassVar[str] = "steps of prompts alone, some decode steps apart, if all fit until their ends"
    source: ClassVar[str] = "LightLLM of 2023 (router/manager.py, req_queue.py); S-LoRA, arXiv 2311.03285"
    every: int = Field(
        default=10, ge=0, le=10**6, description="decode steps between two steps of prompts, at least"
    )

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        admitted = batcher.admitted
        due = not (batcher.running and admitted) or batcher.steps - admitted[-1].join_step >= self.every
        if due and batcher.waiting:
            self._admit(batcher, step, now)
        if step.chunks:
            return
        batcher.decode(step)
        if batcher.waiting and step.decodes:
            # Prompts may be due at any step: no stretch of equal steps while sequences wait.
            step.preempted = True

    def _admit(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """Whole prompts in the order of arrival, while the budget, slots and the peak allow."""
        waiting, kv, tokens = batcher.waiting, batcher.kv, batcher.budget
        running, room = batcher.sequences(), kv.total * batcher.block_tokens
        while waiting and batcher.running < batcher.slots:
            sequence = waiting[0]
            cached = kv.match(sequence)
            chunk = sequence.target - cached
            if running:
                beside = kv.beside((*running, sequence))
                if chunk > tokens or peak(batcher.steps, running, sequence) + beside > room:
                    return
            if not batcher.hold(sequence, sequence.target, cached):
                return
            waiting.popleft()
            batcher.admit(step, sequence, cached, now)
            batcher.compute(step, sequence, chunk)
            running.append(sequence)
            tokens -= chunk


def peak(steps: int, running: list[Sequence], waiting: Sequence) -> int:
    """Most KV tokens that running sequences and a waiting one hold together, if each runs to its end.

    Sorted by the tokens that are left, the i-th sequence ends when those before it are still there.
    """
    left = [sequence.end_step - steps for sequence in running] + [waiting.output - waiting.generated - 1]
    kv_tokens = [sequence.join_kv + steps - sequence.join_step for sequence in running] + [waiting.target]
    order = np.argsort(-np.array(left), kind="stable")
    ends, now = np.array(left)[order], np.array(kv_tokens)[order]
    return int((ends * np.arange(1, len(ends) + 1) + np.cumsum(now)).max())
