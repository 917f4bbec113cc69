"""ZB-H1: the backward split in two, weight gradients filling the bubble at 1F1B's memory."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import BACKWARD, FORWARD, WEIGHT, Array, Schedule, Task, WorkTimes


class ZeroBubbleH1(Schedule):
    """Handcrafted zero-bubble schedule with at most p micro batches in flight on every rank."""

    name = "zb-h1"
    rule = "one chunk per rank and at least as many micro batches as stages"
    source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 2.2"
    splits_backward = True
    post_validation = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """One chunk per rank, enough micro batches to fill the pipeline."""
        return (p >= 1) & (m >= p) & (v == 1)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """As many micro batches as stages, on every rank."""
        return np.minimum(p, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """1F1B; rank r delays each weight gradient by r backwards."""
        self.check(stages, micro_batches, chunks)
        return [delayed_weights(micro_batches, stages - rank, rank) for rank in range(stages)]


def delayed_weights(micro_batches: int, warm_up: int, delay: int) -> list[Task]:
    """``warm_up`` forwards, then backward, the weight gradient ``delay`` backwards older, and forward."""
    warm_up = min(warm_up, micro_batches)
    order = [Task(FORWARD, i, 0) for i in range(warm_up)]
    for i in range(micro_batches):
        order.append(Task(BACKWARD, i, 0))
        if i >= delay:
            order.append(Task(WEIGHT, i - delay, 0))
        if warm_up + i < micro_batches:
            order.append(Task(FORWARD, warm_up + i, 0))
    return order + [Task(WEIGHT, i, 0) for i in range(max(micro_batches - delay, 0), micro_batches)]
