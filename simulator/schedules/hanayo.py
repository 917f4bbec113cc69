"""Hanayo: wave-like pipelines, up and down the ranks several times without a second replica."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import Array, Schedule, Task, WorkTimes
from simulator.schedules.greedy import best_orders, both_preferences


class Hanayo(Schedule):
    """Two chunks per rank make one wave."""

    name = "hanayo"
    rule = "2 or more stages and an even number of chunks per rank (two per wave)"
    source = "Liu et al., Hanayo, SC23 (arXiv 2308.15762), section 3"
    returns = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """At least two stages, two chunks per wave."""
        return (p >= 2) & (m >= 1) & (v >= 2) & (v % 2 == 0)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """At most one micro batch per stage."""
        return np.minimum(p, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The shortest of greedy orders that hold at most p micro batches' activations per rank."""
        self.check(stages, micro_batches, chunks)
        rules = both_preferences(chunks * stages, stages)
        return best_orders(self, stages, micro_batches, chunks, times, rules)
