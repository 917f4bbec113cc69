"""Automatic zero bubble: the best order found for the real times under a memory limit."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import Array, Schedule, Task, WorkTimes
from simulator.schedules.greedy import Rules, best_orders
from simulator.schedules.zb_h1 import delayed_weights


class ZeroBubbleAuto(Schedule):
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

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The shortest of greedy orders of several degrees of patience, and of H1 and H2 where they fit."""
        self.check(stages, micro_batches, chunks)
        limit = int(self.in_flight(stages, micro_batches, chunks, 0))
        rules = [Rules(limit, split=True, patience=patience) for patience in (0.0, 0.3, 0.6, 1.0)]
        handcrafted = []
        for reach in (1, 2):
            if limit >= reach * stages - (reach - 1) and micro_batches >= reach * stages - (reach - 1):
                handcrafted.append(
                    [
                        delayed_weights(micro_batches, reach * (stages - rank) - (reach - 1), reach * rank)
                        for rank in range(stages)
                    ]
                )
        return best_orders(self, stages, micro_batches, chunks, times, rules, handcrafted)
