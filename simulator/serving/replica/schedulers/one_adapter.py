"""Batches of one adapter."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.admission import admit, go_on
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers.prefill_first import PrefillFirst


class OneAdapter(PrefillFirst):
    """As prefill-first, but only sequences with the adapter of the running ones are admitted.

    With none running the oldest sequence says whose turn it is. Without adapters all are alike.
    """

    name: ClassVar[str] = "one-adapter"
    rule: ClassVar[str] = "as prefill-first, sequences of one adapter at a time"
    source: ClassVar[str] = "vLLM 0.2 with one model at a time, baseline of Punica (arXiv 2310.18547)"

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        waiting = batcher.waiting
        running = batcher.sequences()
        tokens = go_on(batcher, step, batcher.budget) if batcher.prefilling else batcher.budget
        if waiting and not step.preempted:
            adapter = (running or waiting)[0].request.adapter
            others = [sequence for sequence in waiting if sequence.request.adapter != adapter]
            same = [sequence for sequence in waiting if sequence.request.adapter == adapter]
            waiting.clear()
            waiting.extend(same)
            admit(batcher, step, tokens, now, not batcher.chunks_prompts)
            waiting.extend(others)
        if not step.chunks:
            batcher.decode(step)
