"""Vocabulary parallelism: the output layer of every micro batch split over all pipeline ranks."""

from __future__ import annotations

import bisect

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
from simulator.schedules.one_f_one_b import OneFOneB, alternate
from simulator.schedules.v_half import VHalf, offsets, repeated
from simulator.schedules.walk import walk

SOURCE = (
    "Yeung et al., Balancing Pipeline Parallelism with Vocabulary Parallelism, MLSys 2025 (arXiv 2411.05288)"
)


class VocabularyParallel1F1B(Schedule):
    """1F1B with one more micro batch in flight for each barrier.

    Args:
        name: what plans call it.
        barriers: 1 where the softmax is corrected after the input gradient's matrix product
            (section 4.3, algorithm 2), 2 where it is finished before (algorithm 1).
    """

    source = f"{SOURCE}, section 5"

    def __init__(self, name: str, barriers: int) -> None:
        self.name, self.output_barriers = name, barriers

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """1F1B's, and one for each barrier."""
        return np.minimum(p - rank + self.output_barriers, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """1F1B with a longer warm-up; ranks run their share of the output layer when its input arrives."""
        self.check(stages, micro_batches, chunks)
        forwards = [Task(FORWARD, i, 0) for i in range(micro_batches)]
        backwards = [Task(BACKWARD, i, 0) for i in range(micro_batches)]
        base = [
            alternate(forwards, backwards, stages - 1 - rank + self.output_barriers) for rank in range(stages)
        ]
        return with_output_layer(OneFOneB(), stages, micro_batches, chunks, base, times)


class VocabularyParallelVHalf(Schedule):
    """V-Half with one more micro batch in flight for its barrier."""

    name = "vocab-v-half"
    rule = VHalf.rule
    source = f"{SOURCE}, section 5.3"
    splits_backward = True
    returns = True
    output_barriers = 1

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """As V-Half."""
        return VHalf().accepts(p, m, v)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """V-Half's, and one for the barrier."""
        return np.minimum(VHalf().resident(p, p, v, rank) + self.output_barriers, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The building block with its backwards one period later, shares of the output layer between."""
        self.check(stages, micro_batches, chunks)
        base = [
            repeated(offsets(stages, rank, self.output_barriers), micro_batches) for rank in range(stages)
        ]
        return with_output_layer(VHalf(), stages, micro_batches, chunks, base, times)


def with_output_layer(
    schedule: Schedule,
    stages: int,
    micro_batches: int,
    chunks: int,
    orders: list[list[Task]],
    times: WorkTimes | None,
) -> list[list[Task]]:
    """Insert "S" and "T" tasks into orders with time for them.

    A rank runs its share "S" of a micro batch at the first change of task after that micro batch's last
    forward has ended, and "T" at the first one after every rank has begun "S".

    Args:
        schedule: that of ``orders``, without an output layer.
        stages, micro_batches, chunks: as in ``Schedule.orders``.
        orders: per rank.
        times: None for equal times.
    """
    base = walk(schedule, stages, micro_batches, chunks, orders, times)
    source, chunk = schedule.routes(stages, chunks)[0][-1]
    places: list[list[tuple[int, int, int, Task]]] = [[] for _ in orders]
    for task, ready in zip(orders[source], base.ends[source], strict=True):
        if task.kind != FORWARD or task.chunk != chunk:
            continue
        i = task.micro_batch
        shares = [bisect.bisect_left(starts, ready) for starts in base.starts]
        begun = max(
            max(ready, ends[place - 1]) if place else ready
            for place, ends in zip(shares, base.ends, strict=True)
        )
        for rank, starts in enumerate(base.starts):
            places[rank].append((shares[rank], i, 0, Task(OUTPUT_FORWARD, i, 0)))
            weight = max(bisect.bisect_left(starts, begun), shares[rank])
            places[rank].append((weight, i, 1, Task(OUTPUT_WEIGHT, i, 0)))
    result: list[list[Task]] = []
    for order, inserted in zip(orders, places, strict=True):
        inserted.sort(key=lambda each: each[:3])
        merged: list[Task] = []
        done = 0
        for place, _, _, task in inserted:
            merged += order[done:place]
            done = place
            merged.append(task)
        result.append(merged + order[done:])
    return result
