"""Interleaved 1F1B: several chunks per rank, visited round-robin."""

from __future__ import annotations

from typing import NamedTuple

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
    whole,
)
from simulator.schedules.one_f_one_b import alternate


class Interleaved(Schedule):
    """Megatron-LM's virtual pipeline: the bubble shrinks by the number of chunks (SC21)."""

    name = "interleaved"
    rule = "2 or more stages, 2 or more chunks per rank and micro batches in multiples of the stages"
    source = "Narayanan et al., SC21 (arXiv 2104.04473), section 2.2.2; Megatron-LM schedules.py"
    has_closed_form = True

    def requires(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """At least two stages and two chunks, and whole groups of micro batches."""
        p, m, v = whole(stages, micro_batches, chunks)
        return (p >= 2) & (m >= 1) & (v >= 2) & (m % np.maximum(p, 1) == 0)

    def in_flight(
        self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage_index: ArrayLike
    ) -> Array:
        """The warm-up forwards and one more, each of one chunk: p (1 + (p-1)/(pv)) on the first rank."""
        p, m, v, rank = whole(stages, micro_batches, chunks, stage_index)
        return np.minimum(_warm_up(p, v, rank) + 1, m * v) / v

    def window(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """The last group's passes of all chunks but the first to finish, and that chunk's last pass."""
        p, m, v = whole(stages, micro_batches, chunks)
        return (np.minimum(p, m) * (v - 1) + 1) / v

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Groups of one micro batch per stage go through chunk after chunk; directions alternate."""
        self.check(stages, micro_batches, chunks)
        groups = range(0, micro_batches, stages)
        forwards = [
            Task(FORWARD, first + i, chunk)
            for first in groups
            for chunk in range(chunks)
            for i in range(stages)
        ]
        backwards = [
            Task(BACKWARD, first + i, chunk)
            for first in groups
            for chunk in reversed(range(chunks))
            for i in range(stages)
        ]
        warm_ups = [int(_warm_up(*whole(stages, chunks, rank))) for rank in range(stages)]
        return [alternate(forwards, backwards, warm_up) for warm_up in warm_ups]

    def makespan(self, times: PipelineTimes) -> Array:
        """The longest path through the schedule's graph, over the families that can be longest.

        For equal stages and no transfer it is (m + (p-1)/v) (forward + backward) (SC21, 2.2.2). For
        unequal ones: the rank that sets the pace does all its work, and waits at the start until its
        first backward can begin, and at the end (the same, with time reversed) from its last forward.
        Within 2 % of the exact longest path for ends 0.7 to 1.5 times a middle stage.
        """
        c = chain(times)
        p, m = c.stages, c.micro_batches
        total = m * c.chunks
        all_visits = _visits(c, total)
        best = np.zeros(())
        for rank in (np.zeros_like(p), np.minimum(1, p - 1), np.maximum(p - 2, 0), p - 1):
            visits = _WaitVisits.of(c, rank)
            own_start, data_start = _waits(c, rank, visits)
            own_end, data_end = _waits(c.reversed(), rank, visits)
            # With every forward in the warm-up the two waits overlap: one path cannot take both.
            apart = _warm_up(p, c.chunks, rank) + 1 < total
            waits = np.maximum(own_start + data_end, data_start + own_end)
            waits = np.maximum(waits, own_start + own_end)
            waits = np.where(apart, np.maximum(waits, data_start + data_end), waits)
            work = _forwards(c, rank, all_visits) + _backwards(c, rank, all_visits)
            best = np.maximum(best, work + waits)
        return best


def _warm_up(stages: Array, chunks: Array, rank: Array) -> Array:
    return 2 * (stages - 1 - rank) + (chunks - 1) * stages


class _Visits(NamedTuple):
    """A rank's first ``visited`` chunk visits: those of the chunk it starts and of the one it ends with."""

    visited: Array
    starting: Array
    ending: Array


def _visits(c: Chain, count: Array) -> _Visits:
    p = c.stages
    # Exact for whole numbers of this size, and four times as fast as divmod of floats.
    rounds = np.floor(count / (p * c.chunks))
    rest = count - rounds * p * c.chunks
    ending = rounds * p + np.minimum(np.maximum(rest - (c.chunks - 1) * p, 0), p)
    return _Visits(count, rounds * p + np.minimum(rest, p), ending)


class _WaitVisits(NamedTuple):
    """Visits that the waits of a rank consist of, in both directions of time."""

    warm_up: _Visits
    """Forwards before a rank's first backward."""
    group: _Visits
    """The first forward of the last chunk, and all before it."""
    second_forward: _Visits
    """The first forward of chunk 1 in the second group, and all before it."""
    second_backward: _Visits
    """Backwards before that forward."""

    @classmethod
    def of(cls, c: Chain, rank: Array) -> _WaitVisits:
        p, m, v = c.stages, c.micro_batches, c.chunks
        warm_up, index = _warm_up(p, v, rank), p * v + p
        counts = np.minimum(warm_up + 1, m * v), (v - 1) * p + 1, index, index - warm_up
        return cls(*(_visits(c, count) for count in counts))


def _forwards(c: Chain, rank: Array, visits: _Visits) -> Array:
    """Work of a rank's first forward chunks."""
    extra = np.where(rank == 0, visits.starting * c.forward_first, 0.0)
    return (
        visits.visited * c.forward
        + extra
        + np.where(rank == c.stages - 1, visits.ending * c.forward_last, 0.0)
    )


def _backwards(c: Chain, rank: Array, visits: _Visits) -> Array:
    """Work of a rank's first backward chunks, which come from the last position."""
    extra = np.where(rank == 0, visits.ending * c.backward_first, 0.0)
    return (
        visits.visited * c.backward
        + extra
        + np.where(rank == c.stages - 1, visits.starting * c.backward_last, 0.0)
    )


def _waits(c: Chain, rank: Array, visits: _WaitVisits) -> tuple[Array, Array]:
    """Idle seconds of a rank before its steady state: if it never waits once started, and if data is late.

    Data is late for the first backward because the first micro batch must pass every position, or
    because a whole group must first pass the last rank's slow final position.
    """
    p, m, v = c.stages, c.micro_batches, c.chunks
    step = c.forward + c.hop
    own = rank * step + np.where(rank > 0, c.forward_first, 0.0)

    first_ring = np.maximum(p * step + c.forward_first, p * (c.forward + c.forward_first))
    last_forward = first_ring + (v - 2) * p * step + (p - 1) * step + c.forward + c.forward_last
    data = last_forward + (p - 1 - rank) * (c.backward + c.hop) + np.where(rank < p - 1, c.backward_last, 0.0)
    data = data - _forwards(c, rank, visits.warm_up)

    group = np.maximum(last_forward, (p - 1) * step + c.forward_first + _forwards(c, p - 1, visits.group))
    group = group + p * (c.backward + c.backward_last) + (p - 1) * (c.forward + c.forward_last)
    group = group + (rank + 1) * step
    group = group - _forwards(c, rank, visits.second_forward) - _backwards(c, rank, visits.second_backward)
    data = np.where((m > p) & (rank < p - 1), np.maximum(data, group), data)
    return own, data
