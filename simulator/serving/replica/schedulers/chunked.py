"""Decodes first, then chunks of prompts up to the token budget."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.admission import admit, go_on
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.base import Scheduler


class Chunked(Scheduler):
    """Decodes first, then chunks of partly computed prompts; the remaining budget admits waiting sequences.

    Waiting sequences are admitted first come first served; the first that finds no slot or no blocks stops
    the queue. Nothing is admitted in a step that preempted. With `chunked_prefill: false`
    only whole prompts are admitted.

    Attributes:
        always_cuts: prompts are cut to fit, whatever `chunked_prefill` says.
    """

    always_cuts: ClassVar[bool] = False

    name: ClassVar[str] = "chunked"
    rule: ClassVar[str] = "decodes first, prompts in chunks up to the token budget"
    source: ClassVar[str] = "Agrawal et al., SARATHI, arXiv 2308.16369; vLLM 1 scheduler"

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        if batcher.decodes:
            batcher.decode(step)
        tokens = batcher.left(step)
        if batcher.prefilling:
            tokens = go_on(batcher, step, tokens)
        if not step.preempted and batcher.waiting:
            admit(batcher, step, tokens, now, not (self.always_cuts or batcher.chunks_prompts))
