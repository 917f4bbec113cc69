"""Chimera: two pipelines in opposite directions fill each other's bubbles."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import Array, Task, WorkTimes
from simulator.schedules.bidirectional import Bidirectional
from simulator.schedules.greedy import best_orders, both_preferences


class Chimera(Bidirectional):
    """Bidirectional 1F1B, two model replicas; units of p micro batches joined directly."""

    name = "chimera"
    rule = "even numbers of stages and micro batches, and two chunks per rank (one per direction)"
    source = "Li and Hoefler, Chimera, SC21 (arXiv 2107.06925), section 3"

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """An even number of stages and of micro batches, one chunk per direction."""
        return (p >= 2) & (p % 2 == 0) & (m >= 2) & (m % 2 == 0) & (v == 2)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """At most one micro batch per stage."""
        return np.minimum(p, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The shortest of greedy orders that hold at most p micro batches' activations per rank."""
        self.check(stages, micro_batches, chunks)
        rules = both_preferences(stages, stages)
        return best_orders(self, stages, micro_batches, chunks, times, rules)
