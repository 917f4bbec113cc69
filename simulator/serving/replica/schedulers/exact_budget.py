"""Steps of constant size: long prompts are split, short prompts combined."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.batcher import Batcher, PlannedStep
from simulator.serving.replica.schedulers.base import Scheduler
from simulator.serving.replica.schedulers.chunked import admit, go_on


class ExactBudget(Scheduler):
    """Decodes first; prompts fill the step to exactly the token budget while there are any.

    Prompts are always cut to fit, whatever `chunked_prefill` says.
    """

    name: ClassVar[str] = "exact-budget"
    rule: ClassVar[str] = "decodes, then prompts cut and composed to exactly the token budget"
    source: ClassVar[str] = "Holmes et al., DeepSpeed-FastGen (SplitFuse), arXiv 2401.08671"

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        batcher.decode(step)
        tokens = go_on(batcher, step, batcher.budget - step.decodes)
        if batcher.waiting and not step.preempted:
            admit(batcher, step, tokens, now)
