"""Prompts in steps: next chunks of partly computed prompts, and admission of waiting sequences."""

from __future__ import annotations

from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep


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


def admit(batcher: Batcher, step: PlannedStep, tokens: int, now: float, uncut: bool = False) -> None:
    """Admit waiting sequences, first come first served, while tokens, slots and blocks last.

    Args:
        batcher, step, now: as in `Scheduler.fill`.
        tokens: left of the budget.
        uncut: prompts are not cut; one that exceeds the budget runs in a step without other prompts.
    """
    waiting, kv = batcher.waiting, batcher.kv
    while waiting and tokens > 0 and batcher.running < batcher.slots:
        sequence = waiting[0]
        cached = kv.match(sequence)
        chunk = sequence.target - cached
        if chunk > tokens:
            if not uncut:
                chunk = tokens
            elif step.chunks:
                return
        if batcher.admits_whole and not batcher.fits(sequence, cached):
            return
        if not batcher.hold(sequence, cached + chunk, cached):
            return
        waiting.popleft()
        batcher.admit(step, sequence, cached, now)
        batcher.compute(step, sequence, chunk)
        tokens -= chunk
