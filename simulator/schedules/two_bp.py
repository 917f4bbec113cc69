"""2BP: 1F1B with the backward in two stages; weight gradients run where a rank would idle."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.schedules.base import Array, Schedule, Task, WorkTimes, whole
from simulator.schedules.greedy import Rules, best_orders


class TwoStageBackward(Schedule):
    """Weight gradients run as late as possible, so activations of all micro batches may be held."""

    name = "2bp"
    rule = "one chunk per rank"
    source = "Rae et al., 2BP: 2-Stage Backpropagation, 2024 (arXiv 2405.18047), section 3"
    splits_backward = True

    def requires(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """One chunk per rank."""
        p, m, v = whole(stages, micro_batches, chunks)
        return (p >= 1) & (m >= 1) & (v == 1)

    def in_flight(
        self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage_index: ArrayLike
    ) -> Array:
        """Every micro batch of the step, at worst."""
        p, m, v, rank = whole(stages, micro_batches, chunks, stage_index)
        return (m + 0 * (p + v + rank)).astype(np.float64)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """1F1B's forwards and backwards; a weight gradient when neither can start."""
        self.check(stages, micro_batches, chunks)
        rules = [
            Rules(micro_batches, split=True, patience=patience, window=stages) for patience in (0.0, 0.5, 1.0)
        ]
        return best_orders(self, stages, micro_batches, chunks, times, rules)
