"""V-Half: a building block on V-shaped placement that needs half the activations of 1F1B."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    Array,
    Schedule,
    Task,
    WorkTimes,
)


class VHalf(Schedule):
    """One micro batch's passes at fixed offsets, repeated every six units of time."""

    name = "v-half"
    rule = "2 or more stages, two chunks per rank and at least as many micro batches as stages"
    source = (
        "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024 (arXiv 2405.15362), section 3"
    )
    splits_backward = True
    returns = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """Two chunks per rank, enough micro batches to fill the pipeline."""
        return (p >= 2) & (m >= p) & (v == 2)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """Half as many micro batches as stages, plus one (rounded down)."""
        return np.minimum((p + 2) // 2, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The building block of every micro batch, weight gradients in the free slots."""
        self.check(stages, micro_batches, chunks)
        return [repeated(offsets(stages, rank), micro_batches) for rank in range(stages)]


PERIOD = 6
"""Units of time between micro batches: two chunks of forward, input gradient and weight gradient."""


def offsets(stages: int, rank: int, held_longer: int = 0) -> list[tuple[int, str, int]]:
    """When a rank runs the passes of one micro batch: time, kind and chunk.

    The first chunk's forward and the second chunk's backward take two units a rank, the others one; a gap
    before the backwards keeps the slots of a period apart. ``held_longer`` delays the backwards by that
    number of periods.
    """
    gap = (3 if stages % 2 == 0 else 0) + PERIOD * held_longer
    return [
        (2 * rank, FORWARD, 0),
        (3 * stages - rank - 2, FORWARD, 1),
        (3 * stages + gap + 2 * rank - 1, BACKWARD, 1),
        (6 * stages + gap - rank - 2, BACKWARD, 0),
    ]


def repeated(block: list[tuple[int, str, int]], micro_batches: int) -> list[Task]:
    """The block of every micro batch in order of time, weight gradients in free slots."""
    slots = {
        time + PERIOD * i: Task(kind, i, chunk) for time, kind, chunk in block for i in range(micro_batches)
    }
    order: list[Task] = []
    weights: list[Task] = []
    for time in range(max(slots) + 1):
        task = slots.get(time)
        if task is None:
            if weights:
                order.append(weights.pop(0))
            continue
        order.append(task)
        if task.kind == BACKWARD:
            weights.append(Task(WEIGHT, task.micro_batch, task.chunk))
    return order + weights
