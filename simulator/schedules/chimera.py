"""Chimera: two pipelines in opposite directions fill each other's bubbles."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.schedules.base import Array, Task, WorkTimes, whole
from simulator.schedules.bidirectional import Bidirectional
from simulator.schedules.greedy import best_orders, both_preferences


class Chimera(Bidirectional):
    """Bidirectional 1F1B, two model replicas; units of p micro batches joined directly."""

    name = "chimera"
    rule = "even numbers of stages and micro batches, and two chunks per rank (one per direction)"
    source = "Li and Hoefler, Chimera, SC21 (arXiv 2107.06925), section 3"

    def requires(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """An even number of stages and of micro batches, one chunk per direction."""
        p, m, v = whole(stages, micro_batches, chunks)
        return (p >= 2) & (p % 2 == 0) & (m >= 2) & (m % 2 == 0) & (v == 2)

    def in_flight(
        self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage_index: ArrayLike
    ) -> Array:
        """At most one micro batch per stage."""
        p, m, v, rank = whole(stages, micro_batches, chunks, stage_index)
        return (np.minimum(p, m) + 0 * (v + rank)).astype(np.float64)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The shortest of greedy orders that hold at most p micro batches' activations per rank."""
        self.check(stages, micro_batches, chunks)
        rules = both_preferences(stages, stages)
        return best_orders(self, stages, micro_batches, chunks, times, rules)
