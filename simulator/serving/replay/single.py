"""The loop of a replica without pipeline stages as kernels; see `simulator.serving.replica.replica`."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from simulator.serving.replay.batch import extend, finish, queue_up, quiet
from simulator.serving.replay.kernels import kernel
from simulator.serving.replay.layout import (
    AHEAD,
    ARRIVALS,
    COUNT,
    FIRST_S,
    FREE,
    GROWTH_S,
    LANES,
    NEXT_S,
    PLANNED_STEP,
    PREEMPTED,
    QUEUE,
    QUEUED,
    QUEUED_S,
    ROW_COUNT,
    RUNNING,
    RUNNING_STEP,
    SLOTS,
    START_S,
    STEP,
    STEP_CHUNKS,
    STEP_DECODES,
    STEP_FIRSTS,
    STEP_KV,
    STEP_LEAVING,
    STEP_PREEMPTED,
    STEP_PROMPT,
    STEP_REAL,
    STEP_WIDTH,
    TIMES_WIDTH,
    TOKEN_S,
    ReplicaColumns,
)
from simulator.serving.replay.lists import put_row
from simulator.serving.replay.plans import plan
from simulator.serving.replay.prices import step_seconds, stretch_seconds

FIRST_STEP, SECOND_STEP = LANES + STEP, LANES + STEP + STEP_WIDTH
"""The two planned steps of the only lane."""


@kernel
def steps_within(passed: float, first: float, growth: float) -> float:
    """Steps of a stretch that end within ``passed`` seconds, not rounded; see `replica.base.steps_in`."""
    if growth <= 0.0:
        return passed / first
    half = first - 0.5 * growth
    return (sqrt(half * half + 2.0 * growth * max(passed, 0.0)) - half) / growth


@kernel
def steps_over(passed: float, first: float, growth: float, limit: int) -> int:
    """Steps of a stretch after which ``passed`` seconds are over; see `replica.base.steps_done`."""
    done = max(int(steps_within(passed, first, growth)) - 1, 0)
    while done < limit and done * first + growth * done * (done - 1) * 0.5 < passed:
        done += 1
    return max(done, 1)


@kernel
def run_single(
    ints: Any,
    reals: Any,
    sequences: Any,
    cache: Any,
    times: Any,
    places: Any,
    phases: Any,
    heaps: Any,
    prices: Any,
    marks: Any,
    rows: Any,
    room: int,
) -> bool:
    """Run all arrivals of a replica; False where ``room`` rows are kept and there is more to run."""
    columns = ReplicaColumns(ints, reals, sequences, cache, times, places, phases, heaps, prices, marks, rows)
    while True:
        arrival, until = ints[QUEUED], inf
        if arrival < ints[ARRIVALS]:
            until = times[arrival * TIMES_WIDTH + QUEUED_S]
        if not advance_single(columns, until, room):
            return False
        if until == inf:
            return True
        submit_single(ints, reals, sequences, arrival, until)


@kernel
def advance_single(columns: ReplicaColumns, until: float, room: int) -> bool:
    """Run all steps that end before a time; False where ``room`` rows are kept before that."""
    ints, reals = columns.ints, columns.reals
    while reals[NEXT_S] < until:
        now = reals[NEXT_S]
        turn_single(columns, now)
        if ints[ROW_COUNT] >= room:
            return False
    return True


@kernel
def submit_single(ints: Any, reals: Any, sequences: Any, sequence: int, now: float) -> None:
    """Queue a sequence at a time to which the replica was advanced; it cuts a stretch that it could end."""
    waiting = ints[PREEMPTED] + ints[QUEUED] - ints[QUEUE]
    if ints[COUNT] > 1 and waiting == 0 and ints[LANES + RUNNING] < ints[SLOTS]:
        cut(ints, reals, now)
    queue_up(ints, sequences, sequence)
    if reals[NEXT_S] == inf:
        # Plan after all arrivals of this instant.
        reals[NEXT_S] = now
        ints[COUNT] = 0


@kernel
def settle_single(columns: ReplicaColumns, now: float) -> None:
    """End a running stretch with the step under way, and count up to that step; see `Replica.settle`."""
    ints, reals, rows = columns.ints, columns.reals, columns.rows
    step = ints[RUNNING_STEP]
    if not step or ints[COUNT] < 2:
        return
    cut(ints, reals, now)
    earlier, start = ints[COUNT] - 1, reals[START_S]
    ints[COUNT] = 1
    if not earlier:
        return
    end = start + earlier * reals[FIRST_S] + reals[GROWTH_S] * earlier * (earlier - 1) * 0.5
    since = reals[TOKEN_S] if reals[TOKEN_S] > 0.0 else start
    decodes, waiting = ints[step + STEP_DECODES], ints[PREEMPTED] + ints[QUEUED] - ints[QUEUE]
    running, free = ints[LANES + RUNNING], ints[FREE]
    put_row(
        rows, ints, start, end, since, earlier, decodes, ints[step + STEP_KV], 0, 0, running, waiting, free
    )
    reals[START_S] = end
    reals[TOKEN_S] = end
    planned = ints[PLANNED_STEP]
    if planned:
        extend(columns, 0, planned, earlier)
        ints[step + STEP_KV] += earlier * decodes
    else:
        extend(columns, 0, step, earlier)


@kernel
def cut(ints: Any, reals: Any, now: float) -> None:
    """End the running stretch with the step that is under way."""
    first, growth = reals[FIRST_S], reals[GROWTH_S]
    count = steps_over(now - reals[START_S], first, growth, ints[COUNT])
    if count < ints[COUNT]:
        ints[COUNT] = count
        reals[NEXT_S] = reals[START_S] + count * first + growth * count * (count - 1) * 0.5


@kernel
def turn_single(columns: ReplicaColumns, now: float) -> None:
    """End the running step or stretch, and start the next; see `Replica.advance`."""
    ints, reals = columns.ints, columns.reals
    step = ints[RUNNING_STEP]
    if step:
        end_single(columns, step, now)
    free = SECOND_STEP if step == FIRST_STEP else FIRST_STEP
    if ints[AHEAD]:
        begun, planned = ints[PLANNED_STEP], 0
        if not begun and plan(columns, 0, free, now):
            begun = free
        other = SECOND_STEP if begun == FIRST_STEP else FIRST_STEP
        if begun and plan(columns, 0, other, now):
            planned = other
        ints[PLANNED_STEP] = planned
        step = begun
    elif plan(columns, 0, free, now):
        step = free
    else:
        step = 0
    ints[RUNNING_STEP] = step
    if step:
        reals[START_S] = now
        reals[NEXT_S] = now + launch(columns, step)
    else:
        reals[NEXT_S], ints[COUNT], reals[TOKEN_S] = inf, 1, -1.0


@kernel
def end_single(columns: ReplicaColumns, step: int, now: float) -> None:
    """End the running step or stretch."""
    ints, reals, rows = columns.ints, columns.reals, columns.rows
    decodes, since, count = ints[step + STEP_DECODES], reals[TOKEN_S], ints[COUNT]
    if decodes:
        reals[TOKEN_S] = now
        if since <= 0.0:
            since = reals[START_S]
    put_row(
        rows,
        ints,
        reals[START_S],
        now,
        since,
        count,
        decodes,
        ints[step + STEP_KV],
        ints[step + STEP_PROMPT],
        ints[step + STEP_FIRSTS],
        ints[LANES + RUNNING],
        ints[PREEMPTED] + ints[QUEUED] - ints[QUEUE],
        ints[FREE],
    )
    if count > 1:
        planned = ints[PLANNED_STEP] if ints[AHEAD] else step
        extend(columns, 0, planned, count - 1)
    if ints[step + STEP_FIRSTS] or ints[step + STEP_LEAVING]:
        finish(columns, LANES, step, now)


@kernel
def launch(columns: ReplicaColumns, step: int) -> float:
    """Seconds of the step to launch, or of the stretch that it begins."""
    ints, reals, phases = columns.ints, columns.reals, columns.phases
    heaps, prices, marks = columns.heaps, columns.prices, columns.marks
    decodes, kv_tokens = ints[step + STEP_DECODES], ints[step + STEP_KV]
    changes = ints[step + STEP_CHUNKS] + ints[step + STEP_LEAVING] + ints[step + STEP_PREEMPTED]
    if decodes and not changes:
        if ints[AHEAD]:
            planned, more = ints[PLANNED_STEP], 0
            if planned:
                changes = ints[planned + STEP_CHUNKS] + ints[planned + STEP_LEAVING]
                changes += ints[planned + STEP_PREEMPTED]
                if not changes and ints[planned + STEP_DECODES] == decodes:
                    more = quiet(ints, phases, heaps, 0)
        else:
            more = quiet(ints, phases, heaps, 0)
        if more:
            first, growth, count = stretch_seconds(prices, marks, decodes, kv_tokens)
            if count > more:
                count = more + 1
            ints[COUNT], reals[FIRST_S], reals[GROWTH_S] = count, first, growth
            return count * first + growth * count * (count - 1) * 0.5
    ints[COUNT] = 1
    return step_seconds(
        prices,
        marks,
        decodes,
        kv_tokens,
        ints[step + STEP_CHUNKS],
        ints[step + STEP_PROMPT],
        reals[ints[step + STEP_REAL]],
    )
