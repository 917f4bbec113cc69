"""Iteration-level batching: whole prompts join the running decodes."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.batcher import Batcher, PlannedStep
from simulator.serving.replica.schedulers.base import Scheduler
from simulator.serving.replica.schedulers.chunked import admit, go_on


class Continuous(Scheduler):
    """Each step runs all decodes and as many whole waiting prompts as slots, blocks and tokens allow."""

    name: ClassVar[str] = "continuous"
    rule: ClassVar[str] = "decodes and whole prompts in one step"
    source: ClassVar[str] = "Yu et al., Orca, OSDI 2022; TensorRT-LLM in-flight batching"

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        batcher.decode(step)
        tokens = batcher.budget - step.decodes
        if batcher.prefilling:
            tokens = go_on(batcher, step, tokens)
        if batcher.waiting and not step.preempted:
            admit(batcher, step, tokens, now, not batcher.chunks_prompts)
