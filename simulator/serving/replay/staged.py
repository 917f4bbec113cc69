"""The loop of a replica with pipeline stages as kernels; see `simulator.serving.replica.pipeline`."""

from __future__ import annotations

from math import inf
from typing import Any

from simulator.serving.replay.batch import again, finish, queue_up
from simulator.serving.replay.kernels import kernel
from simulator.serving.replay.layout import (
    ADMITTED_NOW,
    ARRIVALS,
    BUSY_FROM_S,
    CHUNKS_S,
    EXIT_S,
    FREE,
    FREE_S,
    LANE_COUNT,
    LANE_COUNT_S,
    LANE_GROWTH_S,
    LANE_REALS,
    LANE_REALS_WIDTH,
    LANE_WIDTH,
    LANES,
    LANES_UNDER_WAY,
    LAST_EXIT_S,
    NEXT_S,
    ORDER,
    PREEMPTED,
    QUEUE,
    QUEUED,
    QUEUED_S,
    READY_S,
    ROUNDS,
    ROW_COUNT,
    RUNNING,
    SECONDS,
    SLOTS,
    STAGED,
    STEP,
    STEP_CHUNKS,
    STEP_DECODES,
    STEP_FIRSTS,
    STEP_KV,
    STEP_LEAVING,
    STEP_PREEMPTED,
    STEP_PROMPT,
    TIMES_WIDTH,
    TURNED_S,
    VALID,
    ReplicaColumns,
)
from simulator.serving.replay.lists import put_row
from simulator.serving.replay.plans import plan
from simulator.serving.replay.prices import step_seconds, stretch_seconds
from simulator.serving.replay.rounds import commit, stretched
from simulator.serving.replica.pipeline import SHORTEST_ROUNDS


@kernel
def run_staged(
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
        while reals[NEXT_S] < until:
            if ints[ROW_COUNT] >= room:
                return False
            turn_staged(columns, reals[NEXT_S])
        if until == inf:
            return True
        # Queue the arrival; it ends a stretch unless all lanes are full or others wait.
        if ints[ROUNDS] and ints[PREEMPTED] + arrival - ints[QUEUE] == 0:
            for lane in range(ints[LANE_COUNT]):
                if ints[LANES + lane * LANE_WIDTH + RUNNING] < ints[SLOTS]:
                    commit(columns, until)
                    break
        queue_up(ints, sequences, arrival)
        start = max(until, reals[TURNED_S])
        if reals[NEXT_S] > start and ints[LANES_UNDER_WAY] < ints[LANE_COUNT]:
            reals[NEXT_S] = start


@kernel
def turn_staged(columns: ReplicaColumns, now: float) -> None:
    """End the lane step that ends next, and launch idle lanes; see `PipelinedReplica.advance`."""
    ints, reals, places = columns.ints, columns.reals, columns.places
    reals[TURNED_S] = now
    if ints[ROUNDS]:
        commit(columns, now)
    order = ints[ORDER]
    if ints[LANES_UNDER_WAY]:
        lane = places[order]
        if reals[LANE_REALS + lane * LANE_REALS_WIDTH + EXIT_S] <= now:
            end_staged(columns, lane, now)
    for lane in range(ints[LANE_COUNT]):
        if ints[PREEMPTED] + ints[QUEUED] - ints[QUEUE] == 0:
            break
        if not ints[LANES + lane * LANE_WIDTH + STAGED]:
            launch_lane(columns, lane, now)
    under_way = ints[LANES_UNDER_WAY]
    if not under_way:
        reals[NEXT_S] = inf
        return
    first = places[order]
    next_s = reals[LANE_REALS + first * LANE_REALS_WIDTH + EXIT_S]
    valid = min(
        ints[LANES + first * LANE_WIDTH + VALID],
        ints[LANES + places[order + under_way - 1] * LANE_WIDTH + VALID],
    )
    if valid > SHORTEST_ROUNDS:
        next_s = stretched(columns, next_s)
    reals[NEXT_S] = next_s


@kernel
def end_staged(columns: ReplicaColumns, lane: int, now: float) -> None:
    """End the step of the lane that leaves first, and start its next."""
    ints, reals, places, rows = columns.ints, columns.reals, columns.places, columns.rows
    base, real, order = LANES + lane * LANE_WIDTH, LANE_REALS + lane * LANE_REALS_WIDTH, ints[ORDER]
    step, under_way = base + STEP, ints[LANES_UNDER_WAY] - 1
    for place in range(under_way):
        places[order + place] = places[order + place + 1]
    ints[LANES_UNDER_WAY] = under_way
    waiting = ints[PREEMPTED] + ints[QUEUED] - ints[QUEUE]
    put_row(
        rows,
        ints,
        reals[BUSY_FROM_S],
        now,
        reals[real + READY_S],
        ints[base + LANE_COUNT_S],
        ints[step + STEP_DECODES],
        ints[step + STEP_KV],
        ints[step + STEP_PROMPT],
        ints[step + STEP_FIRSTS],
        ints[ADMITTED_NOW],
        waiting,
        ints[FREE],
    )
    reals[BUSY_FROM_S] = now
    ints[base + LANE_COUNT_S] = 1
    if ints[step + STEP_FIRSTS] or ints[step + STEP_LEAVING]:
        finish(columns, base, step, now)
    goes_on = ints[base + VALID] > 2 and waiting == 0
    if goes_on and again(columns, lane, step):
        # The same decodes again, on the same line segment of the table.
        reals[real + SECONDS] += reals[real + LANE_GROWTH_S]
        ints[base + VALID] = 0 if ints[step + STEP_LEAVING] else ints[base + VALID] - 1
        enter(ints, reals, places, lane, now)
        return
    ints[base + STAGED] = 0
    launch_lane(columns, lane, now)


@kernel
def launch_lane(columns: ReplicaColumns, lane: int, now: float) -> None:
    """Plan a lane's next step and let it in."""
    ints, reals, places = columns.ints, columns.reals, columns.places
    prices, marks = columns.prices, columns.marks
    base, real = LANES + lane * LANE_WIDTH, LANE_REALS + lane * LANE_REALS_WIDTH
    step = base + STEP
    if not plan(columns, lane, step, now):
        return
    decodes, kv_tokens = ints[step + STEP_DECODES], ints[step + STEP_KV]
    changes = ints[step + STEP_CHUNKS] + ints[step + STEP_LEAVING] + ints[step + STEP_PREEMPTED]
    if decodes and not changes:
        seconds, growth, valid = stretch_seconds(prices, marks, decodes, kv_tokens)
    else:
        chunks, prompt, chunks_s = (
            ints[step + STEP_CHUNKS],
            ints[step + STEP_PROMPT],
            reals[real + CHUNKS_S],
        )
        seconds = step_seconds(prices, marks, decodes, kv_tokens, chunks, prompt, chunks_s)
        growth, valid = 0.0, 0
    ints[base + STAGED] = 1
    ints[base + VALID] = valid
    reals[real + SECONDS] = seconds
    reals[real + LANE_GROWTH_S] = growth
    enter(ints, reals, places, lane, now)


@kernel
def enter(ints: Any, reals: Any, places: Any, lane: int, now: float) -> None:
    """Let a lane's next step into the first stage."""
    real = LANE_REALS + lane * LANE_REALS_WIDTH
    seconds = reals[real + SECONDS]
    share = seconds / ints[LANE_COUNT]
    under_way = ints[LANES_UNDER_WAY]
    if not under_way:
        reals[BUSY_FROM_S] = now
    begin, last = max(reals[FREE_S], now), reals[LAST_EXIT_S] + share
    leave = max(begin + seconds, last)
    reals[real + READY_S] = now
    reals[real + EXIT_S] = leave
    reals[FREE_S] = begin + share
    reals[LAST_EXIT_S] = leave
    places[ints[ORDER] + under_way] = lane
    ints[LANES_UNDER_WAY] = under_way + 1
