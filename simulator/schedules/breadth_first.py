"""Breadth-first: all micro batches pass one chunk before the next chunk starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    Array,
    Chain,
    PipelineTimes,
    Schedule,
    Task,
    WorkTimes,
    chain,
    integers,
)


class BreadthFirst(Schedule):
    """Looped placement, all micro batches chunk by chunk: sharded weights are gathered once a chunk."""

    name = "breadth-first"
    rule = "2 or more stages, 2 or more chunks per rank"
    source = "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023 (arXiv 2211.05953), section 4"
    has_closed_form = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """At least two stages and two chunks."""
        return (p >= 2) & (m >= 1) & (v >= 2)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """Every micro batch of the step."""
        return m

    def window(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """All passes of all chunks but the first to finish, and that chunk's last pass."""
        p, m, v = integers(stages, micro_batches, chunks)
        return (m * (v - 1) + 1) / v + 0.0 * p

    def gathered_together(self, stages: ArrayLike, micro_batches: ArrayLike) -> Array:
        """All micro batches."""
        p, m = integers(stages, micro_batches)
        return m + 0 * p

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Forwards chunk by chunk, then backwards chunk by chunk from the last."""
        self.check(stages, micro_batches, chunks)
        order = [Task(FORWARD, i, chunk) for chunk in range(chunks) for i in range(micro_batches)]
        order += [Task(BACKWARD, i, chunk) for chunk in reversed(range(chunks)) for i in range(micro_batches)]
        return [order] * stages

    def makespan(self, times: PipelineTimes) -> Array:
        """Rounds of all micro batches through one chunk, then a flow shop through the last chunk.

        A round lasts until the first micro batch is back on the first rank and the ranks are free: with
        fewer micro batches than stages the first condition sets the pace, else the second. Exact for ranks of
        equal time plus the ends of the model.
        """
        c = chain(times)
        return _one_way(c) + _one_way(c.reversed())


def _one_way(c: Chain) -> Array:
    p, m, v = c.stages, c.micro_batches, c.chunks
    slowest = c.forward.max(axis=0)
    first, last = c.forward_first, c.forward_last
    # In a busy round the slowest rank runs all micro batches; else the first micro batch passes all ranks.
    busy, ring = m * slowest, (c.lengths * c.forward).sum(axis=0) + p * c.hop
    round_ = np.maximum(busy, ring)
    busy_first = np.maximum(m * (c.forward[0] + first), busy + first)
    end = ring - c.hop + last + (m - 1) * np.maximum(slowest, c.forward[-1] + last)
    rounds = np.maximum(busy_first, ring + first) + (v - 2) * round_ + end
    # Of two ranks one is busy for some rounds, then the other: each with all micro batches of its end.
    head, tail = c.forward[0], c.forward[-1]
    all_busy = np.maximum(first + v * m * tail + m * last, m * (first + (v - 1) * head + tail + last))
    all_busy = head + c.hop + np.maximum(all_busy, m * first + (v * m - 1) * head + tail + last)
    ring_first = ring + first + (v - 2) * round_ + end
    ring_later = busy_first + ring + (v - 3) * round_ + end
    two = np.maximum(np.maximum(all_busy, ring_first), np.where(v > 2, ring_later, 0.0))
    rounds = np.where(p == 2, two, rounds)
    # Fewer micro batches than stages: the slowest position spaces them, and the last micro batch runs the
    # rest.
    through = v * ring - c.hop + first + last
    paces = np.maximum(c.forward[0] + first, c.forward[-1] + last)
    return np.maximum(rounds, through + (m - 1) * np.maximum(paces, slowest))
