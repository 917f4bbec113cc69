"""GPipe: every forward, then every backward."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    Array,
    PipelineTimes,
    Schedule,
    Task,
    WorkTimes,
    chain,
    whole,
)


class GPipe(Schedule):
    """All forwards of a step before its first backward (Huang et al., NeurIPS 2019)."""

    name = "gpipe"
    rule = "one chunk per rank"
    source = "Huang et al., GPipe, NeurIPS 2019, section 2.3"
    has_closed_form = True

    def requires(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """One chunk per rank."""
        p, m, v = whole(stages, micro_batches, chunks)
        return (p >= 1) & (m >= 1) & (v == 1)

    def in_flight(
        self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage_index: ArrayLike
    ) -> Array:
        """Every micro batch of the step."""
        p, m, v, rank = whole(stages, micro_batches, chunks, stage_index)
        return (m + 0 * (p + v + rank)).astype(np.float64)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Forwards in order, backwards in the same order."""
        self.check(stages, micro_batches, chunks)
        order = [Task(FORWARD, i, 0) for i in range(micro_batches)]
        order += [Task(BACKWARD, i, 0) for i in range(micro_batches)]
        return [order] * stages

    def makespan(self, times: PipelineTimes) -> Array:
        """Two flow shops of equal jobs: one passes all stages, the others the slowest stage. Exact."""
        c = chain(times)
        once = c.stages * (c.forward + c.backward) + c.forward_first + c.forward_last
        once = once + c.backward_first + c.backward_last + 2 * c.hop * (c.stages - 1)
        slowest = _slowest(c.stages, c.forward, c.forward_first, c.forward_last)
        slowest = slowest + _slowest(c.stages, c.backward, c.backward_first, c.backward_last)
        return once + (c.micro_batches - 1) * slowest


def _slowest(stages: Array, middle: Array, first: Array, last: Array) -> Array:
    """The largest time of one pass on any rank."""
    ends = np.maximum(first, last)
    ends = np.where(stages > 2, np.maximum(ends, 0.0), ends)
    return middle + np.where(stages == 1, first + last, ends)
