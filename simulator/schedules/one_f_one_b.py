"""1F1B: after a warm-up, every rank alternates one forward and one backward."""

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
    whole,
)


class OneFOneB(Schedule):
    """PipeDream-Flush, Megatron-LM's schedule without virtual stages (Narayanan et al., ICML 2021)."""

    name = "1f1b"
    rule = "one chunk per rank"
    source = "Narayanan et al., SC21 (arXiv 2104.04473), section 2.2.1; Megatron-LM schedules.py"
    has_closed_form = True

    def requires(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """One chunk per rank."""
        p, m, v = whole(stages, micro_batches, chunks)
        return (p >= 1) & (m >= 1) & (v == 1)

    def in_flight(
        self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage_index: ArrayLike
    ) -> Array:
        """Stages from this one to the last."""
        p, m, v, rank = whole(stages, micro_batches, chunks, stage_index)
        return (np.minimum(p - rank, m) + 0 * v).astype(np.float64)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """Warm-up forwards, pairs of forward and backward, cool-down backwards."""
        self.check(stages, micro_batches, chunks)
        forwards = [Task(FORWARD, i, 0) for i in range(micro_batches)]
        backwards = [Task(BACKWARD, i, 0) for i in range(micro_batches)]
        return [alternate(forwards, backwards, stages - 1 - rank) for rank in range(stages)]

    def makespan(self, times: PipelineTimes) -> Array:
        """The longest path through the schedule's graph, over the families that can be longest.

        One micro batch goes down and up the pipeline. Each further one adds the slowest part that repeats per
        micro batch: the work of one rank, or the loop "forward to a later rank, backward from it", which a
        rank waits for because its warm-up is no longer than the loop. Within 2 % of the exact longest path
        for ends 0.5 to 3 times a middle stage.
        """
        c = chain(times)
        p, m = c.stages, c.micro_batches
        best = _round_trip(c)
        for rank in (np.zeros_like(p), np.minimum(1, p - 1), np.maximum(p - 2, 0), p - 1):
            best = np.maximum(best, _slow_rank(c, rank))
        for start in (np.zeros_like(p), np.minimum(1, p - 1)):
            first = np.clip(p - m + 1, start, p - 1)  # a step of few micro batches has no longer loop
            to_last = _loop(c, first, p - 1)
            best = np.maximum(best, _round_trip(c) + (m - 1) * to_last / (p - first))
            inner = np.maximum(p - 2, first)
            inner_mean = _loop(c, first, inner) / (inner - first + 1)
            best = np.maximum(best, _round_trip(c) + to_last + (m - 1 - p + first) * inner_mean)
        return best


def alternate(forwards: list[Task], backwards: list[Task], warm_up: int) -> list[Task]:
    """``warm_up`` forwards, then forward and backward in turn, then the remaining backwards."""
    warm_up = min(warm_up, len(forwards))
    order = forwards[:warm_up]
    steady = len(forwards) - warm_up
    for forward, backward in zip(forwards[warm_up:], backwards[:steady], strict=True):
        order += (forward, backward)
    return order + backwards[steady:]


def _at(rank: Array, stages: Array, middle: Array, first: Array, last: Array) -> Array:
    return middle + np.where(rank == 0, first, 0.0) + np.where(rank == stages - 1, last, 0.0)


def _round_trip(c: Chain) -> Array:
    ends = c.forward_first + c.forward_last + c.backward_first + c.backward_last
    return c.stages * (c.forward + c.backward) + ends + 2 * c.hop * (c.stages - 1)


def _loop(c: Chain, first: Array, last: Array) -> Array:
    """Forward from rank ``first`` to ``last`` and backward again, both ranks included."""
    work = (last - first + 1) * (c.forward + c.backward) + 2 * c.hop * (last - first)
    work = work + np.where(first == 0, c.forward_first + c.backward_first, 0.0)
    return work + np.where(last == c.stages - 1, c.forward_last + c.backward_last, 0.0)


def _slow_rank(c: Chain, rank: Array) -> Array:
    """The step where one rank sets the pace: the way to it, its work and waits, and the way back."""
    p, m = c.stages, c.micro_batches
    forward = _at(rank, p, c.forward, c.forward_first, c.forward_last)
    backward = _at(rank, p, c.backward, c.backward_first, c.backward_last)
    work = forward + backward
    beyond = np.where(rank < p - 1, _loop(c, np.minimum(rank + 1, p - 1), p - 1) + 2 * c.hop, 0.0)
    before = _round_trip(c) - beyond - work
    held = p - rank
    waits = np.maximum(beyond, (held - 1) * forward) + np.maximum(beyond, (held - 1) * backward)
    long_step = (m - held + 1) * work + waits
    short_step = work + np.maximum(beyond + (m - 1) * np.maximum(forward, backward), (m - 1) * work)
    return before + np.where(m > held, long_step, np.where(held == 1, m * work, short_step))
