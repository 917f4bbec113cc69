"""Decodes first, then chunks of prompts up to the token budget."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.batcher import Batcher, PlannedStep
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
        batcher.decode(step)
        tokens = batcher.budget - step.decodes
        if batcher.prefilling:
            tokens = go_on(batcher, step, tokens)
        if not step.preempted and batcher.waiting:
            admit(batcher, step, tokens, now, not (self.always_cuts or batcher.chunks_prompts))


def go_on(batcher: Batcher, step: PlannedStep, tokens: int) -> int:
    """Put the next chunks of partly computed prompts into the step; returns the tokens left."""
    for sequence in list(batcher.prefilling):
        chunk = min(tokens, sequence.target - sequence.computed)
        if chunk <= 0:
            break
        while not batcher.kv.hold(sequence, sequence.computed + chunk):
            batcher.preempt(step)
            if sequence not in batcher.prefilling:
                return tokens
        batcher.compute(step, sequence, chunk)
        tokens -= chunk
    return tokens


def admit(batcher: Batcher, step: PlannedStep, tokens: int, now: float, whole: bool = False) -> None:
    """Admit waiting sequences, first come first served, while tokens, slots and blocks last.

    Args:
        batcher, step, now: as in `Scheduler.fill`.
        tokens: left of the budget.
        whole: prompts are not cut; one that exceeds the budget runs in a step without other prompts.
    """
    waiting, kv = batcher.waiting, batcher.kv
    while waiting and tokens > 0 and batcher.running < batcher.slots:
        sequence = waiting[0]
        found = kv.match(sequence)
        chunk = sequence.target - found
        if chunk > tokens:
            if not whole:
                chunk = tokens
            elif step.chunks:
                return
        if not batcher.hold(sequence, found + chunk, found):
            return
        waiting.popleft()
        batcher.admit(step, sequence, found, now)
        batcher.compute(step, sequence, chunk)
        tokens -= chunk
