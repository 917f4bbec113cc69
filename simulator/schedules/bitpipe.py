"""BitPipe: bidirectional pipelines of V-shaped, interleaved placement."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import Array, Task, WorkTimes
from simulator.schedules.bidirectional import Bidirectional
from simulator.schedules.greedy import best_orders, both_preferences


class BitPipe(Bidirectional):
    """Two replicas in opposite directions, each with two chunks per rank in a V."""

    name = "bitpipe"
    rule = "even numbers of stages and micro batches, and four chunks per rank (two per direction)"
    source = "Wu et al., BitPipe, 2024 (arXiv 2410.19367), section 3"
    returns = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """An even number of stages and of micro batches, two chunks per direction."""
        return (p >= 2) & (p % 2 == 0) & (m >= 2) & (m % 2 == 0) & (v == 4)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """At most one micro batch per stage."""
        return np.minimum(p, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The shortest of greedy orders that hold at most p micro batches' activations per rank."""
        self.check(stages, micro_batches, chunks)
        rules = both_preferences(2 * stages, stages)
        return best_orders(self, stages, micro_batches, chunks, times, rules)
