"""ZB-H2: no bubble where ranks do not synchronise at the end of a step."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import Array, Schedule, Task, WorkTimes
from simulator.schedules.zb_h1 import delayed_weights


class ZeroBubbleH2(Schedule):
    """Handcrafted zero-bubble schedule: more warm-up forwards fill the bubble before the first backward."""

    name = "zb-h2"
    rule = "one chunk per rank and at least 2 x stages - 1 micro batches"
    source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 2.3"
    splits_backward = True
    post_validation = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """One chunk per rank, enough micro batches for the longer warm-up."""
        return (p >= 1) & (m >= 2 * p - 1) & (v == 1)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """2p - 1 micro batches, on every rank."""
        return np.minimum(2 * p - 1, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Twice 1F1B's warm-up less one, weight gradients twice as late as in ZB-H1."""
        self.check(stages, micro_batches, chunks)
        return [delayed_weights(micro_batches, 2 * (stages - rank) - 1, 2 * rank) for rank in range(stages)]
