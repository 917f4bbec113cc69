"""Rounds of pipelined lanes in closed form as kernels; see `simulator.serving.replica.pipeline`."""

from __future__ import annotations

from typing import Any

from simulator.serving.replay.batch import extend, quiet
from simulator.serving.replay.kernels import kernel
from simulator.serving.replay.layout import (
    BLOCK_TOKENS,
    DECODES,
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
    LONGEST,
    NEXT_S,
    ORDER,
    PREEMPTED,
    QUEUE,
    QUEUED,
    RESERVES,
    ROUNDS,
    RUNNING,
    SECONDS,
    SLOTS,
    STAGED,
    STEP,
    STEP_LEAVING,
    VALID,
    ReplicaColumns,
)
from simulator.serving.replay.single import steps_within
from simulator.serving.replica.pipeline import NO_END, SAME_S, SHORTEST_ROUNDS


@kernel
def seconds_after(reals: Any, lane: int, rounds: int) -> float:
    """Seconds of a lane's step of a round."""
    real = LANE_REALS + lane * LANE_REALS_WIDTH
    return reals[real + SECONDS] + rounds * reals[real + LANE_GROWTH_S]


@kernel
def exit_after(reals: Any, lane: int, rounds: int) -> float:
    """When the longest lane leaves the last stage in a round."""
    real = LANE_REALS + lane * LANE_REALS_WIDTH
    growth = reals[real + LANE_GROWTH_S]
    return reals[real + EXIT_S] + rounds * (reals[real + SECONDS] + growth * (rounds + 1) * 0.5)


@kernel
def run_rounds(columns: ReplicaColumns, lane: int, rounds: int) -> None:
    """Set the rounds that a lane has run; see `PipelineLane.run`."""
    ints, reals = columns.ints, columns.reals
    base, real = LANES + lane * LANE_WIDTH, LANE_REALS + lane * LANE_REALS_WIDTH
    if ints[base + STAGED]:
        extend(columns, lane, base + STEP, rounds)
        ints[base + VALID] = 0 if ints[base + STEP + STEP_LEAVING] else ints[base + VALID] - rounds
    reals[real + SECONDS] += rounds * reals[real + LANE_GROWTH_S]
    ints[base + LANE_COUNT_S] += rounds


@kernel
def stretched(columns: ReplicaColumns, now: float) -> float:
    """Begin a stretch of rounds where all lanes only decode and the longest leads; returns its end, or
    ``now``."""
    ints, reals, places = columns.ints, columns.reals, columns.places
    phases, heaps = columns.phases, columns.heaps
    if ints[PREEMPTED] + ints[QUEUED] - ints[QUEUE]:
        for lane in range(ints[LANE_COUNT]):
            if ints[LANES + lane * LANE_WIDTH + RUNNING] < ints[SLOTS]:
                return now
    order = ints[ORDER]
    rounds, decodes, longest, most_s = NO_END, 0, 0, -1.0
    for place in range(ints[LANES_UNDER_WAY]):
        lane = places[order + place]
        base = LANES + lane * LANE_WIDTH
        steps = min(quiet(ints, phases, heaps, lane), ints[base + VALID] - 1)
        if steps < rounds:
            if steps < SHORTEST_ROUNDS:
                return now
            rounds = steps
        decodes += ints[base + DECODES]
        seconds = seconds_after(reals, lane, 1)
        if seconds > most_s:
            longest, most_s = place, seconds
    if decodes * (rounds // ints[BLOCK_TOKENS] + 1) > ints[FREE] and not ints[RESERVES]:
        return now
    if not leads(ints, reals, places, places[order + longest], rounds):
        return now
    ints[LONGEST], ints[ROUNDS] = longest, rounds
    return first_exit(ints, reals, places, rounds)


@kernel
def leads(ints: Any, reals: Any, places: Any, lead: int, rounds: int) -> bool:
    """Whether a lane is the longest throughout, and the next round is the same step by step."""
    free, last, stages = reals[FREE_S], reals[LAST_EXIT_S], ints[LANE_COUNT]
    order, under_way = ints[ORDER], ints[LANES_UNDER_WAY]
    expected = reals[LANE_REALS + places[order + under_way - 1] * LANE_REALS_WIDTH + EXIT_S]
    first, most_s, final = (
        seconds_after(reals, lead, 0),
        seconds_after(reals, lead, 1),
        seconds_after(reals, lead, rounds),
    )
    for place in range(under_way):
        lane = places[order + place]
        real = LANE_REALS + lane * LANE_REALS_WIDTH
        seconds, leave = reals[real + SECONDS], reals[real + EXIT_S]
        if lane == lead:
            seconds = most_s
            expected = leave + seconds
        else:
            growth = reals[real + LANE_GROWTH_S]
            if seconds > first or seconds + rounds * growth > final:
                return False
            seconds += growth
            expected += seconds / stages
        share = seconds / stages
        begin = leave if leave > free else free
        leave = max(begin + seconds, last + share)
        if abs(leave - expected) > SAME_S * max(leave, 1.0):
            return False
        free, last = begin + share, leave
    return True


@kernel
def first_exit(ints: Any, reals: Any, places: Any, rounds: int) -> float:
    """When the first lane ends its step of a round, from the first on."""
    order, at, stages = ints[ORDER], ints[LONGEST], ints[LANE_COUNT]
    lead, under_way, earlier = places[order + at], ints[LANES_UNDER_WAY], rounds - 1
    if not at:
        return exit_after(reals, lead, rounds)
    if earlier:
        time = exit_after(reals, lead, earlier)
        for place in range(at + 1, under_way):
            time += seconds_after(reals, places[order + place], earlier) / stages
    else:
        time = reals[LANE_REALS + places[order + under_way - 1] * LANE_REALS_WIDTH + EXIT_S]
    return time + seconds_after(reals, places[order], rounds) / stages


@kernel
def rotate(ints: Any, places: Any, count: int) -> None:
    """Move the first lanes of the order behind the others."""
    order, last = ints[ORDER], ints[LANES_UNDER_WAY] - 1
    for _ in range(count):
        lane = places[order]
        for place in range(last):
            places[order + place] = places[order + place + 1]
        places[order + last] = lane


@kernel
def ended(ints: Any, reals: Any, lead: int, now: float) -> int:
    """Exits of the longest lane before a time."""
    real, limit = LANE_REALS + lead * LANE_REALS_WIDTH, ints[ROUNDS]
    passed, growth = now - reals[real + EXIT_S], reals[real + LANE_GROWTH_S]
    if passed <= 0.0:
        return 0
    exits = min(int(steps_within(passed, reals[real + SECONDS] + growth, growth)) + 1, limit)
    # Correct rounding errors of one or two exits.
    while exit_after(reals, lead, exits - 1) >= now:
        exits -= 1
    while exits < limit and exit_after(reals, lead, exits) < now:
        exits += 1
    return exits


@kernel
def commit(columns: ReplicaColumns, now: float) -> None:
    """End the stretch: all lanes have run the steps that ended before a time, and run the next ones."""
    ints, reals, places = columns.ints, columns.reals, columns.places
    order, stages, under_way = ints[ORDER], ints[LANE_COUNT], ints[LANES_UNDER_WAY]
    longest = ints[LONGEST]
    lead, free = places[order + longest], reals[FREE_S]
    time = reals[LANE_REALS + places[order + under_way - 1] * LANE_REALS_WIDTH + EXIT_S]
    exit_s, exits = time, ended(ints, reals, lead, now)
    ints[ROUNDS] = 0
    passed = behind = 0
    if exits:
        rotate(ints, places, longest)
        behind = under_way - longest
        passed, exit_s, time = 1, exit_after(reals, lead, exits - 1), exit_after(reals, lead, exits)
        run_rounds(columns, lead, exits)
        free = exit_s + seconds_after(reals, lead, 0) / stages
    for place in range(passed, under_way):
        # The next exit of the lane, which belongs to a round after that of the longest lane, or not.
        lane = places[order + place]
        real = LANE_REALS + lane * LANE_REALS_WIDTH
        rounds = exits - 1 if place < behind else exits
        exit_s = exit_s + seconds_after(reals, lane, rounds) / stages if rounds else reals[real + EXIT_S]
        if passed == place and exit_s < now:
            passed += 1
            run_rounds(columns, lane, rounds + 1)
            free = (exit_s if exit_s > free else free) + reals[real + SECONDS] / stages
        else:
            reals[real + EXIT_S] = exit_s
            if rounds:
                run_rounds(columns, lane, rounds)
    for place in range(passed):
        lane = places[order + place]
        if lane != lead:
            time += reals[LANE_REALS + lane * LANE_REALS_WIDTH + SECONDS] / stages
        reals[LANE_REALS + lane * LANE_REALS_WIDTH + EXIT_S] = time
    rotate(ints, places, passed)
    reals[FREE_S] = free
    reals[LAST_EXIT_S] = reals[LANE_REALS + places[order + under_way - 1] * LANE_REALS_WIDTH + EXIT_S]
    reals[NEXT_S] = reals[LANE_REALS + places[order] * LANE_REALS_WIDTH + EXIT_S]
