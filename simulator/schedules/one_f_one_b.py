"""1F1B: after a warm-up, every rank alternates one forward and one backward."""

from __future__ import annotations

import numpy as np

from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    Array,
    PipelineTimes,
    Schedule,
    Task,
    WorkTimes,
    chain,
)


class OneFOneB(Schedule):
    """PipeDream-Flush, Megatron-LM's schedule without virtual stages (Narayanan et al., ICML 2021)."""

    name = "1f1b"
    source = "Narayanan et al., SC21 (arXiv 2104.04473), section 2.2.1; Megatron-LM schedules.py"
    has_closed_form = True

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """Stages from this one to the last."""
        return np.minimum(p - rank, m)

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
        forward, backward = c.rank_times()
        work = forward + backward
        before = c.before(work)
        round_trip = before[-1] + 2 * c.hop * (p - 1)
        best = round_trip
        for run, offset in c.ranks():
            rank = c.starts[run] + offset
            beyond = before[-1] - before[run] - (offset + 1) * work[run] + 2 * c.hop * (p - 1 - rank)
            path = _slow_rank(p - rank, m, forward[run], backward[run], beyond)
            best = np.maximum(best, np.where(c.lengths[run] > 0, round_trip + path, 0.0))
        ends = [c.starts[run] + c.lengths[run] - 1 for run in range(len(work) - 1)]
        for run in range(len(work) - 1):
            # A step of few micro batches has no longer loop.
            first = np.minimum(np.maximum(p - m + 1, c.starts[run]), p - 1)
            skipped = c.before_rank(first, work)
            to_last = before[-1] - skipped + 2 * c.hop * (p - 1 - first)
            best = np.maximum(best, round_trip + (m - 1) * to_last / (p - first))
            for end in range(max(run, 1), len(work) - 1):
                inner = np.maximum(ends[end], first)
                loop = c.before_rank(inner + 1, work) - skipped + 2 * c.hop * (inner - first)
                mean = loop / (inner - first + 1)
                best = np.maximum(best, round_trip + to_last + (m - 1 - p + first) * mean)
        return best


def alternate(forwards: list[Task], backwards: list[Task], warm_up: int) -> list[Task]:
    """``warm_up`` forwards, then forward and backward in turn, then the remaining backwards."""
    warm_up = min(warm_up, len(forwards))
    order = forwards[:warm_up]
    steady = len(forwards) - warm_up
    for forward, backward in zip(forwards[warm_up:], backwards[:steady], strict=True):
        order += (forward, backward)
    return order + backwards[steady:]


def _slow_rank(ranks: Array, m: Array, forward: Array, backward: Array, beyond: Array) -> Array:
    """Seconds beyond a round trip of the step where one rank sets the pace: its work and waits.

    Args:
        ranks: micro batches that the rank holds: the ranks from it to the last.
        m: micro batches.
        forward: seconds of its forward.
        backward: seconds of its backward.
        beyond: seconds of the way to the last rank and back.
    """
    work = forward + backward
    waits = np.maximum(beyond, (ranks - 1) * forward) + np.maximum(beyond, (ranks - 1) * backward)
    long_step = (m - ranks) * work + waits - beyond
    short_step = np.maximum((m - 1) * np.maximum(forward, backward), (m - 1) * work - beyond)
    return np.where(m > ranks, long_step, np.where(ranks == 1, (m - 1) * work - beyond, short_step))
