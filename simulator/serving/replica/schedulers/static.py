"""Static batching: one batch after another."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from simulator.serving.replica.admission import admit, go_on
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.base import Scheduler


class Static(Scheduler):
    """The next batch starts when the last has ended, and runs until its longest output is complete.

    Shorter outputs are padded: their sequences stay in the batch and end with it. Prompts are packed without
    padding (Prepacking, arXiv 2404.09529; EnergonAI), or padded as Hugging Face's are; KV holds no padding.
    """

    name: ClassVar[str] = "static"
    rule: ClassVar[str] = "a batch runs until its longest output ends; others wait"
    source: ClassVar[str] = "FasterTransformer; Yu et al., OSDI 2022, section 2"
    pads: bool = Field(default=False, description="prompts are padded to the longest of their batch")
    batch: int = Field(0, ge=0, le=2**16, description="most sequences of a batch; 0: max_sequences")

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        waiting = batcher.waiting
        if not batcher.running and waiting:
            batch = list(waiting)[: min(self.batch or batcher.slots, batcher.slots)]
            longest = max(sequence.output for sequence in batch)
            for sequence in batch:
                sequence.output = longest
            later = [waiting.pop() for _ in range(len(waiting) - len(batch))]
            admit(batcher, step, 1 << 60, now, uncut=True)
            waiting.extend(reversed(later))
            if self.pads and step.chunks:
                longest_prompt = max(tokens for tokens, _ in step.chunks)
                step.chunks = ((longest_prompt, 0),) * len(step.chunks)
                step.prompt = longest_prompt * len(step.chunks)
            return
        if batcher.prefilling:
            go_on(batcher, step, batcher.budget)
        if not step.chunks:
            batcher.decode(step)

    def waits(self, batcher: Batcher) -> bool:
        """A running batch admits no sequence."""
        return batcher.running > 0
