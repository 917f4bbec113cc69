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
    integers,
)
from simulator.schedules.one_f_one_b import alternate


class Interleaved(Schedule):
    """Megatron-LM's virtual pipeline: the bubble shrinks by the number of chunks (SC21)."""

    name = "interleaved"
    rule = "2 or more stages, 2 or more chunks per rank and micro batches in multiples of the stages"
    source = "Narayanan et al., SC21 (arXiv 2104.04473), section 2.2.2; Megatron-LM schedules.py"
    has_closed_form = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """At least two stages and two chunks, and whole groups of micro batches."""
        return (p >= 2) & (m >= 1) & (v >= 2) & (m % np.maximum(p, 1) == 0)

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """The warm-up forwards and one more, each of one chunk: p (1 + (p-1)/(pv)) on the first rank."""
        return np.minimum(_warm_up(p, v, rank) + 1, m * v) / v

    def window(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """The last group's passes of all chunks but the first to finish, and that chunk's last pass."""
        p, m, v = integers(stages, micro_batches, chunks)
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
        warm_ups = [int(_warm_up(*integers(stages, chunks, rank))) for rank in range(stages)]
        return [alternate(forwards, backwards, warm_up) for warm_up in warm_ups]

    def makespan(self, times: PipelineTimes) -> Array:
        """The longest path through the schedule's graph, over the families that can be longest.

        For equal stages and no transfer it is (m + (p-1)/v) (forward + backward) (SC21, 2.2.2). For
        unequal ones: the rank that sets the pace does all its work, and waits at the start until its
        first backward can begin, and at the end (the same, with time reversed) from its last forward.
        Within 2 % of the exact longest path for ends 0.7 to 1.5 times a middle stage.
        """
        c = chain(times)
        every = _Visits(c.micro_batches * c.chunks, c.micro_batches, c.micro_batches)
        ways = _Way.of(c), _Way.of(c.reversed())
        best = np.zeros(())
        for run, offset in c.ranks():
            rank = c.starts[run] + offset
            visits = _WaitVisits.of(c, rank)
            (own_start, data_start), (own_end, data_end) = (_waits(way, run, offset, visits) for way in ways)
            # With every forward in the warm-up the two waits overlap: one path cannot take both.
            apart = _warm_up(c.stages, c.chunks, rank) + 1 < every.visited
            waits = np.maximum(own_start + data_end, data_start + own_end)
            waits = np.maximum(waits, own_start + own_end)
            waits = np.where(apart, np.maximum(waits, data_start + data_end), waits)
            work = _forwards(c, run, every) + _backwards(c, run, every)
            best = np.maximum(best, np.where(c.lengths[run] > 0, work + waits, 0.0))
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
    second_forward: _Visits
    """The first forward of chunk 1 in the second group, and all before it."""
    second_backward: _Visits
    """Backwards before that forward."""

    @classmethod
    def of(cls, c: Chain, rank: Array) -> _WaitVisits:
        p, m, v = c.stages, c.micro_batches, c.chunks
        warm_up, second = _warm_up(p, v, rank), p * v + p
        return cls(
            _visits(c, np.minimum(warm_up + 1, m * v)),
            _Visits(second, 2 * p, p),
            _visits(c, second - warm_up),
        )


def _forwards(c: Chain, run: int, visits: _Visits) -> Array:
    """Work of the first forward chunks of a rank of a run."""
    work = visits.visited * c.forward[run]
    if run == 0:
        work = work + visits.starting * c.forward_first
    if run == len(c.forward) - 1:
        work = work + visits.ending * c.forward_last
    return work


def _backwards(c: Chain, run: int, visits: _Visits) -> Array:
    """Work of the first backward chunks of a rank of a run, which come from the last position."""
    work = visits.visited * c.backward[run]
    if run == 0:
        work = work + visits.ending * c.backward_first
    if run == len(c.backward) - 1:
        work = work + visits.starting * c.backward_last
    return work


class _Way(NamedTuple):
    """The way of the first micro batch in one direction of time."""

    chain: Chain
    forward: list[Array]
    """One chunk's forwards of the ranks before each run, and of all."""
    backward: list[Array]
    last_forward: Array
    """End of its forward on the last position."""
    last_backward: Array
    """End of the first group's backwards on the last rank, where it first ran all of its forwards there."""

    @classmethod
    def of(cls, c: Chain) -> _Way:
        p, v, first, last = c.stages, c.chunks, c.forward_first, len(c.forward) - 1
        forward = c.before(c.forward)
        round_ = forward[-1] + p * c.hop
        ring = np.maximum(round_, p * c.forward.max(axis=0))
        first_ring = np.maximum(ring + first, p * (c.forward[0] + first))
        last_forward = first_ring + (v - 2) * ring + round_ - c.hop + c.forward_last
        # The last rank starts late, and runs the first forward of its last chunk after a group of all others.
        started = round_ - c.hop - c.forward[-1] + first
        group = _Visits((v - 1) * p + 1, p, np.ones(()))
        slow = np.maximum(last_forward, started + _forwards(c, last, group))
        slow = slow + p * (c.backward[last] + c.backward_last) + (p - 1) * (c.forward[last] + c.forward_last)
        return cls(c, forward, c.before(c.backward), last_forward, slow)


def _waits(way: _Way, run: int, offset: Array, visits: _WaitVisits) -> tuple[Array, Array]:
    """Idle seconds of a rank before its steady state: if it never waits once started, and if data is late.

    Data is late for the first backward because the first micro batch must pass every position, or
    because a whole group must first pass the last rank's slow final position.
    """
    c, last = way.chain, len(way.chain.forward) - 1
    p, rank = c.stages, c.starts[run] + offset
    to_rank = way.forward[run] + offset * c.forward[run] + rank * c.hop
    start = to_rank + c.forward_first if run else to_rank
    data = way.last_forward - _forwards(c, run, visits.warm_up)
    if run == last:
        return start, data

    back = way.backward[-1] - way.backward[run] - (offset + 1) * c.backward[run] + (p - 1 - rank) * c.hop
    data = data + back + c.backward_last
    group = way.last_backward + to_rank + c.hop + c.forward[run]
    group = group - _forwards(c, run, visits.second_forward) - _backwards(c, run, visits.second_backward)
    return start, np.where(c.micro_batches > p, np.maximum(data, group), data)
