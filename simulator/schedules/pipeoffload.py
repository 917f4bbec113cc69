"""PipeOffload: interleaved 1F1B that keeps activations on the host until their backward pass."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    OFFLOAD,
    RELOAD,
    Array,
    Schedule,
    Task,
    WorkTimes,
)
from simulator.schedules.interleaved import Interleaved
from simulator.schedules.walk import held_at_most

AHEAD = 2
"""Tasks before a backward at which the copy of its activations back starts: one forward and one backward."""


class PipeOffload(Schedule):
    """Offloads some of each rank's chunks, first those whose activations live longest.

    Args:
        name: what plans call it.
        share: part of a rank's chunks whose activations go to the host: half of them (PO-H), or all (PO-F).
    """

    source = "Wan et al., PipeOffload, ICML 2025 (arXiv 2503.01328), section 3"

    def __init__(self, name: str, share: float) -> None:
        self.name, self.share = name, share
        chunks = "an even number of" if share < 1 else "2 or more"
        self.rule = f"2 or more stages, {chunks} chunks per rank and micro batches in multiples of the stages"

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """As interleaved 1F1B, with a whole number of offloaded chunks."""
        return Interleaved().accepts(p, m, v) & (v * self.share % 1 == 0)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """Activations on the device, counted along the order."""
        counted = np.vectorize(_resident, otypes=[np.float64])
        return counted(p, m, v, rank, self.share)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Interleaved 1F1B; copies out right after a forward, back a little before its backward."""
        self.check(stages, micro_batches, chunks)
        base = Interleaved().orders(stages, micro_batches, chunks)
        return [with_copies(order, int(chunks * self.share)) for order in base]


def with_copies(order: list[Task], offloaded_chunks: int) -> list[Task]:
    """Add the copies of the first chunks, where there is time to copy them back."""
    done = {task: place for place, task in enumerate(order)}
    back: dict[int, list[Task]] = {}
    out: set[Task] = set()
    for place, (kind, micro_batch, chunk) in enumerate(order):
        if kind == FORWARD and chunk < offloaded_chunks:
            returns = done[Task(BACKWARD, micro_batch, chunk)] - AHEAD
            if returns > place + AHEAD:
                out.add(order[place])
                back.setdefault(returns, []).append(Task(RELOAD, micro_batch, chunk))
    result: list[Task] = []
    for place, task in enumerate(order):
        result += back.get(place, ())
        result.append(task)
        if task in out:
            result.append(Task(OFFLOAD, task.micro_batch, task.chunk))
    return result


@lru_cache(maxsize=4096)
def _resident(stages: int, micro_batches: int, chunks: int, rank: int, share: float) -> float:
    # The order repeats after three groups of micro batches.
    orders = Interleaved().orders(stages, min(micro_batches, 3 * stages), chunks)
    return held_at_most(with_copies(orders[rank], int(chunks * share)), split=False) / chunks
