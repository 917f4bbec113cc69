"""Prompts before decodes, in separate steps."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.admission import admit, go_on
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.base import Scheduler


class PrefillFirst(Scheduler):
    """While prompts wait and fit, a step computes prompts only, and decodes wait."""

    name: ClassVar[str] = "prefill-first"
    rule: ClassVar[str] = "steps of prompts alone while any fit, else decodes"
    source: ClassVar[str] = "Kwon et al., SOSP 2023 (vLLM 0); SGLang's default loop"

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        tokens = batcher.budget
        if batcher.prefilling:
            tokens = go_on(batcher, step, tokens)
        if batcher.waiting and not step.preempted:
            admit(batcher, step, tokens, now, not batcher.chunks_prompts)
        if not step.chunks:
            batcher.decode(step)
