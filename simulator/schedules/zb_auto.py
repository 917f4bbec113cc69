"""Automatic zero bubble: the best order found for the real times under a memory limit."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import Array, Task
from simulator.schedules.greedy import Greedy, Rules
from simulator.schedules.zb_h1 import delayed_weights


class ZeroBubbleAuto(Greedy):
    """Searches orders of forward, input gradient and weight gradient under a limit on activations.

    Args:
        name: what plans call it.
        limit_per_stage: micro batches in flight per pipeline stage. Qi et al. report 1 (ZB-1p, the memory
            of 1F1B) and 2 (ZB-2p).
    """

    rule = "one chunk per rank and at least as many micro batches as stages"
    source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 3"
    splits_backward = True
    post_validation = True

    def __init__(self, name: str, limit_per_stage: float) -> None:
        self.name, self.limit_per_stage = name, limit_per_stage

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """One chunk per rank, enough micro batches to fill the pipeline."""
        return (p >= 1) & (m >= p) & (v == 1)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """The limit, on every rank."""
        return np.minimum(np.floor(self.limit_per_stage * p), m)

    def rules(self, stages: int, micro_batches: int, chunks: int) -> list[Rules]:
        """Several degrees of patience."""
        limit = int(self.in_flight(stages, micro_batches, chunks, 0))
        return [Rules(limit, split=True, patience=patience) for patience in (0.0, 0.3, 0.6, 1.0)]

    def handcrafted(self, stages: int, micro_batches: int) -> list[list[list[Task]]]:
        """H1 and H2, where they fit."""
        limit = int(self.in_flight(stages, micro_batches, 1, 0))
        return [
            [
                delayed_weights(micro_batches, reach * (stages - rank) - (reach - 1), reach * rank)
                for rank in range(stages)
            ]
            for reach in (1, 2)
            if min(limit, micro_batches) >= reach * stages - (reach - 1)
        ]
