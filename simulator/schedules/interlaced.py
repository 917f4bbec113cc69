"""Interlaced: the output layer of every micro batch in tensor-parallel style between 1F1B's passes."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    OUTPUT_FORWARD,
    OUTPUT_WEIGHT,
    Array,
    Schedule,
    Task,
    WorkTimes,
)


class InterlacedVocabulary(Schedule):
    """nnScaler's schedule: all ranks synchronise for their shares of the output layer and its reductions.

    Ranks idle during a reduction, so a micro batch passes fewer stages in a period and 1.5 times as many
    micro batches are in flight.
    """

    name = "interlaced"
    source = (
        "Lin et al., nnScaler, OSDI 2024, as in Yeung et al., MLSys 2025 (arXiv 2411.05288) and its artifact"
    )
    output_barriers = 2
    waits_for_output = True

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """1.5 times as many micro batches as stages, one fewer on each further rank."""
        return np.minimum(p * 3 // 2 - rank, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Forwards, then shares of the output layer until the first backward arrives, then both in turn."""
        self.check(stages, micro_batches, chunks)
        return [_rank_order(stages, micro_batches, rank) for rank in range(stages)]


def _rank_order(stages: int, micro_batches: int, rank: int) -> list[Task]:
    """Warm-up, shares alone, backwards and shares, all three in turn, and the rest in the same way.

    Neighbouring ranks take forward and backward in opposite orders, so that a period has room for the
    backward of one and the forward of the other.
    """
    below = stages - rank
    ahead = min(stages * 3 // 2 - rank, micro_batches)
    alone = min(below, micro_batches)
    early = max(0, ahead - alone - (below - 1) // 2)
    forward_first = rank % 2 == stages % 2
    order = [Task(FORWARD, i, 0) for i in range(ahead)]
    forwards, backwards, shares = ahead, 0, 0

    def share() -> list[Task]:
        nonlocal shares
        shares += 1
        return [Task(OUTPUT_FORWARD, shares - 1, 0), Task(OUTPUT_WEIGHT, shares - 1, 0)]

    for _ in range(alone):
        order += share()
    while backwards < micro_batches:
        turn = [Task(BACKWARD, backwards, 0)]
        backwards += 1
        if backwards > early and forwards < micro_batches:
            turn.insert(0 if forward_first else 1, Task(FORWARD, forwards, 0))
            forwards += 1
        order += turn
        if shares < micro_batches:
            order += share()
    return order
