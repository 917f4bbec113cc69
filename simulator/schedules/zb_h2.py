"""ZB-H2: no bubble where ranks do not synchronise at the end of a step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.schedules.base import Array, Schedule, Task, WorkTimes, whole
from simulator.schedules.zb_h1 import delayed_weights


class ZeroBubbleH2(Schedule):
    """Handcrafted zero-bubble schedule: more warm-up forwards fill the bubble before the first backward."""

    name = "zb-h2"
    rule = "one chunk per rank and at least 2 x stages - 1 micro batches"
    source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 2.3"
    splits_backward = True
    post_validation = True

    def requires(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """One chunk per rank, enough micro batches for the longer warm-up."""
        p, m, v = whole(stages, micro_batches, chunks)
        return (p >= 1) & (m >= 2 * p - 1) & (v == 1)

    def in_flight(
        self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage_index: ArrayLike
    ) -> Array:
        """2p - 1 micro batches, on every rank."""
        p, m, v, rank = whole(stages, micro_batches, chunks, stage_index)
        return (np.minimum(2 * p - 1, m) + 0 * (v + rank)).astype(np.float64)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Twice 1F1B's warm-up less one, weight gradients twice as late as in ZB-H1."""
        self.check(stages, micro_batches, chunks)
        return [delayed_weights(micro_batches, 2 * (stages - rank) - 1, 2 * rank) for rank in range(stages)]
