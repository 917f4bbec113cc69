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
)
from simulator.serving.replay.lists import put_row
from simulator.serving.replay.plans import plan
from simulator.serving.replay.prices import step_seconds, stretch_seconds
from simulator.serving.replay.rounds import commit, stretched
from simulator.serving.replica.pipeline import SHORTEST_ROUNDS


@kernel
def run_staged(
    whole: Any,
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
    while True:
        arrival, until = whole[QUEUED], inf
        if arrival < whole[ARRIVALS]:
            until = times[arrival * TIMES_WIDTH + QUEUED_S]
        while reals[NEXT_S] < until:
            if whole[ROW_COUNT] >= room:
                return False
            turn_staged(
                whole,
                reals,
                sequences,
                cache,
                times,
                places,
                phases,
                heaps,
                prices,
                marks,
                rows,
                reals[NEXT_S],
            )
        if until == inf:
            return True
        # Queue the arrival; it ends a stretch unless all lanes are full or others wait.
        if whole[ROUNDS] and whole[PREEMPTED] + arrival - whole[QUEUE] == 0:
            for lane in range(whole[LANE_COUNT]):
                if whole[LANES + lane * LANE_WIDTH + RUNNING] < whole[SLOTS]:
                    commit(whole, reals, sequences, cache, places, phases, heaps, until)
                    break
        queue_up(whole, sequences, arrival)
        start = max(until, reals[TURNED_S])
        if reals[NEXT_S] > start and whole[LANES_UNDER_WAY] < whole[LANE_COUNT]:
            reals[NEXT_S] = start


@kernel
def turn_staged(
    whole: Any,
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
    now: float,
) -> None:
    """End the lane step that ends next, and launch idle lanes; see `PipelinedReplica.advance`."""
    reals[TURNED_S] = now
    if whole[ROUNDS]:
        commit(whole, reals, sequences, cache, places, phases, heaps, now)
    order = whole[ORDER]
    if whole[LANES_UNDER_WAY]:
        lane = places[order]
        if reals[LANE_REALS + lane * LANE_REALS_WIDTH + EXIT_S] <= now:
            end_staged(
                whole, reals, sequences, cache, times, places, phases, heaps, prices, marks, rows, lane, now
            )
    for lane in range(whole[LANE_COUNT]):
        if whole[PREEMPTED] + whole[QUEUED] - whole[QUEUE] == 0:
            break
        if not whole[LANES + lane * LANE_WIDTH + STAGED]:
            launch_lane(
                whole, reals, sequences, cache, times, places, phases, heaps, prices, marks, lane, now
            )
    under_way = whole[LANES_UNDER_WAY]
    if not under_way:
        reals[NEXT_S] = inf
        return
    first = places[order]
    next_s = reals[LANE_REALS + first * LANE_REALS_WIDTH + EXIT_S]
    valid = min(
        whole[LANES + first * LANE_WIDTH + VALID],
        whole[LANES + places[order + under_way - 1] * LANE_WIDTH + VALID],
    )
    if valid > SHORTEST_ROUNDS:
        next_s = stretched(whole, reals, places, phases, heaps, next_s)
    reals[NEXT_S] = next_s


@kernel
def end_staged(
    whole: Any,
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
    lane: int,
    now: float,
) -> None:
    """End the step of the lane that leaves first, and start its next."""
    base, real, order = LANES + lane * LANE_WIDTH, LANE_REALS + lane * LANE_REALS_WIDTH, whole[ORDER]
    step, under_way = base + STEP, whole[LANES_UNDER_WAY] - 1
    for place in range(under_way):
        places[order + place] = places[order + place + 1]
    whole[LANES_UNDER_WAY] = under_way
    waiting = whole[PREEMPTED] + whole[QUEUED] - whole[QUEUE]
    put_row(
        rows,
        whole,
        reals[BUSY_FROM_S],
        now,
        reals[real + READY_S],
        whole[base + LANE_COUNT_S],
        whole[step + STEP_DECODES],
        whole[step + STEP_KV],
        whole[step + STEP_PROMPT],
        whole[step + STEP_FIRSTS],
        whole[ADMITTED_NOW],
        waiting,
        whole[FREE],
    )
    reals[BUSY_FROM_S] = now
    whole[base + LANE_COUNT_S] = 1
    if whole[step + STEP_FIRSTS] or whole[step + STEP_LEAVING]:
        finish(whole, sequences, cache, times, places, base, step, now)
    goes_on = whole[base + VALID] > 2 and waiting == 0
    if goes_on and again(whole, sequences, cache, places, phases, heaps, lane, step):
        # The same decodes again, on the same line segment of the table.
        reals[real + SECONDS] += reals[real + LANE_GROWTH_S]
        whole[base + VALID] = 0 if whole[step + STEP_LEAVING] else whole[base + VALID] - 1
        enter(whole, reals, places, lane, now)
        return
    whole[base + STAGED] = 0
    launch_lane(whole, reals, sequences, cache, times, places, phases, heaps, prices, marks, lane, now)


@kernel
def launch_lane(
    whole: Any,
    reals: Any,
    sequences: Any,
    cache: Any,
    times: Any,
    places: Any,
    phases: Any,
    heaps: Any,
    prices: Any,
    marks: Any,
    lane: int,
    now: float,
) -> None:
    """Plan a lane's next step and let it in."""
    base, real = LANES + lane * LANE_WIDTH, LANE_REALS + lane * LANE_REALS_WIDTH
    step = base + STEP
    if not plan(whole, reals, sequences, cache, times, places, phases, heaps, prices, marks, lane, step, now):
        return
    decodes, kv_tokens = whole[step + STEP_DECODES], whole[step + STEP_KV]
    changes = whole[step + STEP_CHUNKS] + whole[step + STEP_LEAVING] + whole[step + STEP_PREEMPTED]
    if decodes and not changes:
        seconds, growth, valid = stretch_seconds(prices, marks, decodes, kv_tokens)
    else:
        chunks, prompt, chunks_s = (
            whole[step + STEP_CHUNKS],
            whole[step + STEP_PROMPT],
            reals[real + CHUNKS_S],
        )
        seconds = step_seconds(prices, marks, decodes, kv_tokens, chunks, prompt, chunks_s)
        growth, valid = 0.0, 0
    whole[base + STAGED] = 1
    whole[base + VALID] = valid
    reals[real + SECONDS] = seconds
    reals[real + LANE_GROWTH_S] = growth
    enter(whole, reals, places, lane, now)


@kernel
def enter(whole: Any, reals: Any, places: Any, lane: int, now: float) -> None:
    """Let a lane's next step into the first stage."""
    real = LANE_REALS + lane * LANE_REALS_WIDTH
    seconds = reals[real + SECONDS]
    share = seconds / whole[LANE_COUNT]
    under_way = whole[LANES_UNDER_WAY]
    if not under_way:
        reals[BUSY_FROM_S] = now
    begin, last = max(reals[FREE_S], now), reals[LAST_EXIT_S] + share
    leave = max(begin + seconds, last)
    reals[real + READY_S] = now
    reals[real + EXIT_S] = leave
    reals[FREE_S] = begin + share
    reals[LAST_EXIT_S] = leave
    places[whole[ORDER] + under_way] = lane
    whole[LANES_UNDER_WAY] = under_way + 1
