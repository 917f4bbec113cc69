"""ZeroPP: blocks of micro batches, breadth-first within a block, weight gradients in the gaps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.schedules.base import Array, integers
from simulator.schedules.greedy import Greedy, Rules


class ZeroPP(Greedy):
    """Interleaved placement with fully sharded data parallelism instead of tensor parallelism.

    A scheduling unit of 2p - 1 micro batches goes chunk by chunk, so that a chunk's weights are gathered
    once per unit.
    """

    name = "zeropp"
    rule = "2 or more stages, 2 or more chunks per rank"
    source = "Tang et al., ZeroPP, 2024 (arXiv 2402.03791), section 3"
    splits_backward = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """At least two stages and two chunks."""
        return (p >= 2) & (m >= 1) & (v >= 2)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """One scheduling unit: 2p - 1 micro batches."""
        return np.minimum(2 * p - 1, m)

    def gathered_together(self, stages: ArrayLike, micro_batches: ArrayLike) -> Array:
        """Micro batches of a scheduling unit."""
        p, m = integers(stages, micro_batches)
        return np.minimum(2 * p - 1, m)

    def rules(self, stages: int, micro_batches: int, chunks: int) -> list[Rules]:
        """Backwards first, then forwards of the earliest chunk, weight gradients in the gaps."""
        unit = 2 * stages - 1
        return [
            Rules(chunks * unit, split=True, patience=patience, window=unit, breadth=True)
            for patience in (0.0, 0.5, 1.0)
        ]
