"""Makespans of all schedules: closed forms, and bounds of the schedules that have none.

A bound is the work of the busiest rank and its idle time in the schedule's own order of passes, where all
ranks take the same time. Idle time stops growing with the number of micro batches once the pipeline is full,
and grows with the number of stages: short pipelines with a few micro batches a stage are walked, each shape
once. Waits for slower ranks and for transfers are left out; the event engine has them
(``planner.training.finalists``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from simulator.schedules.base import Array, PipelineTimes, Schedule, Task, WorkTimes, chain, integers
from simulator.schedules.walk import MOST_WALKED, walk

RATIO_STEPS = 2
"""Steps of 1 / RATIO_STEPS, between which idle time is drawn through as a line."""
MOST_STAGES = 8
"""Stages of the longest pipeline that is walked; idle time of a longer one grows with its stages."""
LEAST_RATIO, MOST_RATIO = 1.25, 4.0
"""Backward over forward time: frozen weights, and full recomputation beside slow gradients."""


def makespan_of(schedule: Schedule, times: PipelineTimes) -> Array:
    """Seconds from the first forward to the last backward (broadcast over plans), or a bound."""
    return schedule.makespan(times) if schedule.has_closed_form else _bound(schedule, times)


def _bound(schedule: Schedule, times: PipelineTimes) -> Array:
    c = chain(replace(times, chunks=np.asarray(times.chunks) / schedule.copies))
    ranks = c.chunks * (c.forward + c.backward)
    first, last = c.forward_first + c.backward_first, c.forward_last + c.backward_last
    present = c.lengths > 0
    if schedule.output_barriers:
        # The output layer is split over all ranks.
        busiest = (ranks * c.lengths).sum(axis=0) / c.stages + (first + last) / c.stages
    elif schedule.copies > 1:
        # Each half of the micro batches takes one of the two directions.
        ends = (ranks[0] + ranks[-1] + first + last) / 2
        busiest = np.maximum(np.where(present[1:-1], ranks[1:-1], 0.0).max(axis=0), ends)
    else:
        ranks[0] += first + (last if schedule.returns else 0.0)
        ranks[-1] += 0.0 if schedule.returns else last
        busiest = np.where(present, ranks, 0.0).max(axis=0)
    forward = (c.chunks * c.forward * c.lengths).sum(axis=0) / c.stages
    backward = (c.chunks * c.backward * c.lengths).sum(axis=0) / c.stages
    return c.micro_batches * busiest + forward * _idle(schedule, times, backward / forward)


def _idle(schedule: Schedule, times: PipelineTimes, ratio: Array) -> Array:
    """Idle time of the busiest rank, in forwards of a rank.

    On lines between steps of the ratio: a stair would rise where a faster link lengthens the ratio past a
    riser. The makespan of an order is convex in the ratio, and so are its lines: it rises with the passes of
    both directions. Greedy orders, which follow the ratio, may still take longer with shorter passes.
    """
    steps = RATIO_STEPS * np.clip(ratio, LEAST_RATIO, MOST_RATIO)
    below = np.floor(steps)
    p, m, v, low = np.broadcast_arrays(
        *integers(times.stages, times.micro_batches, times.chunks), below.astype(np.int64)
    )
    few = np.minimum(m, (MOST_WALKED + 1) * p + m % 2)
    columns = np.stack([np.stack([a.ravel() for a in (p, few, v, low + up)]) for up in (0, 1)], axis=1)
    shapes, inverse = np.unique(columns.reshape(4, -1), axis=1, return_inverse=True)
    idle = [_idle_of(schedule, *map(int, shape)) for shape in shapes.T]
    first, second = np.array(idle)[inverse].reshape(2, *p.shape)
    return first + (steps - below) * (second - first)


@lru_cache(maxsize=4096)
def _idle_of(schedule: Schedule, stages: int, micro_batches: int, chunks: int, steps: int) -> float:
    """Idle time of the busiest rank in forwards of a rank, of ranks that all take the same time."""
    if stages == 1:
        return 0.0
    p, m = _walked(schedule, stages, micro_batches, chunks)
    if not m:
        return 0.0
    places = len(schedule.routes(p, chunks)[0])
    ratio, share = steps / RATIO_STEPS, p / places
    # A weight gradient multiplies as much as a forward does; recomputation belongs to the input gradient.
    backward, weight = (ratio - 1.0, 1.0) if schedule.splits_backward else (ratio, 0.0)
    times = WorkTimes([share] * places, [share * backward] * places, [share * weight] * places)
    done = walk(schedule, p, m, chunks, _orders(schedule, p, m, chunks), times)
    seconds = done.period if schedule.post_validation else done.seconds
    return max(seconds - m * (1.0 + ratio), 0.0) * (stages - 1) / (p - 1)


@lru_cache(maxsize=512)
def _orders(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> list[list[Task]]:
    return schedule.orders(stages, micro_batches, chunks)


def _walked(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> tuple[int, int]:
    """Stages and micro batches that are walked, in the plan's proportion; 0 micro batches where none fit."""
    for p in range(min(stages, MOST_STAGES), 1, -1):
        walked = min(round(micro_batches * p / stages), MOST_WALKED * p)
        for m in range(walked, walked + 2 * p + 1):
            if bool(schedule.requires(p, m, chunks)):
                return p, m
    return stages, 0
