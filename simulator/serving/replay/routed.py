"""Replicas whose router looks at them, as kernels: routers that read loads, KV blocks and prefix caches.

A router counts in the order and in the numbers of its class in `simulator.serving.routers`; of equals it
takes the same one.
"""

from __future__ import annotations

from math import inf
from typing import Any

from simulator.serving.replay.cache import leading
from simulator.serving.replay.kernels import kernel
from simulator.serving.replay.layout import (
    BLOCK_TOKENS,
    COUNT,
    FIRST_UNIT,
    FREE,
    HEAD,
    KV_BLOCKS,
    LANES,
    NEXT_S,
    NEXT_WAITING,
    PREEMPTED,
    PROMPT,
    QUEUE,
    QUEUED,
    QUEUED_S,
    REPLICA,
    RUNNING,
    SEQUENCE_WIDTH,
    TARGET,
    TIMES_WIDTH,
    UNIT_COUNT,
    UNIT_TOKENS,
    USERS,
    ReplicaColumns,
)
from simulator.serving.replay.lists import cell
from simulator.serving.replay.single import advance_single, settle_single, submit_single

LEAST_LOADED, PREFIX_AWARE, FREENESS, SCORED, POWER_OF_TWO = range(5)
"""Kinds of routers, the first of ``rule``; its parameters follow."""
ARRIVAL, PICKED, ARRIVAL_COUNT, READS_KV = range(4)
"""Of ``turns``: the next arrival, the replica that takes it or -1, all arrivals, whether the router reads
blocks."""


@kernel
def run_routed(
    turns: Any,
    rule: Any,
    draws: Any,
    scores: Any,
    sent_s: Any,
    intses: Any,
    realses: Any,
    sequences: Any,
    cache: Any,
    times: Any,
    placeses: Any,
    phaseses: Any,
    heapses: Any,
    prices: Any,
    marks: Any,
    rowses: Any,
    room: int,
) -> int:
    """Run all arrivals of a fleet; the replica that keeps ``room`` rows where there is more to run, else -1.

    Args:
        turns: state of the run.
        rule: kind and parameters of the router.
        draws: random numbers that it uses, two a request.
        scores: room for a number of each replica.
        sent_s: when each request is sent to the fleet, s.
        intses, realses, placeses, phaseses, heapses, rowses: columns of each replica.
        sequences, cache, times: columns of all sequences, by number of arrival.
        prices, marks: of all replicas.
        room: rows of a replica.
    """
    fleet = ReplicaColumns(
        *(intses, realses, sequences, cache, times, placeses, phaseses, heapses, prices, marks, rowses)
    )
    while True:
        arrival, picked = turns[ARRIVAL], turns[PICKED]
        ends = arrival >= turns[ARRIVAL_COUNT]
        # All replicas up to the request's sending; then the one that takes it up to its arrival there.
        first, last, until = 0, len(intses), inf
        if picked >= 0:
            first, last, until = picked, picked + 1, times[arrival * TIMES_WIDTH + QUEUED_S]
        elif not ends:
            until = sent_s[arrival]
        for number in range(first, last):
            if cell(realses, number, NEXT_S) < until and not advance_single(of(fleet, number), until, room):
                return number
        if picked >= 0:
            submit_single(intses[picked], realses[picked], sequences, arrival, until)
            turns[ARRIVAL] = arrival + 1
            turns[PICKED] = -1
            continue
        if ends:
            return -1
        if turns[READS_KV]:
            for number in range(len(intses)):
                if cell(intses, number, COUNT) > 1:
                    settle_single(of(fleet, number), until)
        turns[PICKED] = pick(intses, sequences, cache, placeses, rule, draws, scores, arrival)
        sequences[arrival * SEQUENCE_WIDTH + REPLICA] = turns[PICKED]


@kernel
def of(fleet: ReplicaColumns, number: int) -> ReplicaColumns:
    """The columns of one replica of a fleet."""
    return ReplicaColumns(
        fleet.ints[number],
        fleet.reals[number],
        fleet.sequences,
        fleet.cache,
        fleet.times,
        fleet.places[number],
        fleet.phases[number],
        fleet.heaps[number],
        fleet.prices,
        fleet.marks,
        fleet.rows[number],
    )


@kernel
def pick(
    intses: Any,
    sequences: Any,
    cache: Any,
    placeses: Any,
    rule: Any,
    draws: Any,
    scores: Any,
    arrival: int,
) -> int:
    """The replica that takes a request."""
    count, kind = len(intses), int(rule[0])
    if kind == POWER_OF_TWO:
        first, other = int(draws[2 * arrival] * count), int(draws[2 * arrival + 1] * (count - 1))
        if other >= first:
            other += 1
        return first if load_of(intses, first) <= load_of(intses, other) else other
    if kind == PREFIX_AWARE:
        return pick_by_prefix(intses, sequences, cache, rule, scores, arrival)
    if kind == SCORED:
        return pick_by_scores(intses, sequences, cache, rule, scores, arrival)
    best, least = 0, inf
    for number in range(count):
        if kind == LEAST_LOADED:
            score = load_of(intses, number) + (rule[1] - 1.0) * queue_of(intses, number)
        else:
            free = cell(intses, number, FREE)
            if queue_of(intses, number):
                free -= demand(intses[number], sequences, placeses[number])
            score = -(free / (load_of(intses, number) + 1))
        if score < least:
            best, least = number, score
    return best


@kernel
def queue_of(intses: Any, number: int) -> int:
    """Sequences waiting on a replica."""
    new = cell(intses, number, QUEUED) - cell(intses, number, QUEUE)
    return cell(intses, number, PREEMPTED) + new


@kernel
def load_of(intses: Any, number: int) -> int:
    """Sequences waiting and running on a replica."""
    return queue_of(intses, number) + cell(intses, number, LANES + RUNNING)


@kernel
def cached_of(intses: Any, number: int, sequences: Any, cache: Any, row: int) -> int:
    """Tokens of a new sequence's prompt that a replica's cache holds."""
    if not sequences[row + UNIT_COUNT]:
        return 0
    tokens = cell(intses, number, UNIT_TOKENS)
    limit = min((sequences[row + PROMPT] - 1) // tokens, sequences[row + UNIT_COUNT])
    return leading(cache, cell(intses, number, USERS), sequences[row + FIRST_UNIT], limit) * tokens


@kernel
def demand(ints: Any, sequences: Any, places: Any) -> int:
    """Blocks that the sequences waiting ask for."""
    total, block, sequence = 0, ints[BLOCK_TOKENS], ints[HEAD]
    for place in range(ints[PREEMPTED]):
        total += sequences[places[place] * SEQUENCE_WIDTH + TARGET] // block + 1
    for _ in range(ints[QUEUED] - ints[QUEUE]):
        row = sequence * SEQUENCE_WIDTH
        total += sequences[row + TARGET] // block + 1
        sequence = sequences[row + NEXT_WAITING]
    return total


@kernel
def pick_by_prefix(intses: Any, sequences: Any, cache: Any, rule: Any, scores: Any, arrival: int) -> int:
    """See `PrefixAware.pick`."""
    count, row = len(intses), arrival * SEQUENCE_WIDTH
    prompt = sequences[row + PROMPT]
    least = highest = load_of(intses, 0)
    best, cached = 0, -1.0
    for number in range(count):
        load = load_of(intses, number)
        if load < least:
            best, least = number, load
        highest = max(highest, load)
    if highest - least > rule[2] and highest > rule[3] * least:
        return best
    for number in range(count):
        scores[number] = cached_of(intses, number, sequences, cache, row)
        cached = max(cached, scores[number])
    if cached < rule[1] * prompt:
        return best
    best, least = -1, 0
    for number in range(count):
        if scores[number] == cached:
            load = load_of(intses, number)
            if best < 0 or load < least:
                best, least = number, load
    return best


@kernel
def add_least(scores: Any, intses: Any, weight: float, loads: bool) -> None:
    """Add 1 for the shortest queue (or the least load), 0 for the longest, weighted."""
    low = high = load_of(intses, 0) if loads else queue_of(intses, 0)
    for number in range(len(intses)):
        value = load_of(intses, number) if loads else queue_of(intses, number)
        low, high = min(low, value), max(high, value)
    for number in range(len(intses)):
        value = load_of(intses, number) if loads else queue_of(intses, number)
        scores[number] += weight * ((high - value) / (high - low) if high > low else 1.0)


@kernel
def pick_by_scores(intses: Any, sequences: Any, cache: Any, rule: Any, scores: Any, arrival: int) -> int:
    """See `Scored.pick`; ``rule`` holds the weights of queue, load, blocks and prefix."""
    count, row = len(intses), arrival * SEQUENCE_WIDTH
    prompt = sequences[row + PROMPT]
    for number in range(count):
        scores[number] = 0.0
    if rule[1] != 0.0:
        add_least(scores, intses, rule[1], False)
    if rule[2] != 0.0:
        add_least(scores, intses, rule[2], True)
    for number in range(count):
        if rule[3] != 0.0:
            use = 1.0 - cell(intses, number, FREE) / cell(intses, number, KV_BLOCKS)
            scores[number] += rule[3] * (1.0 - use)
        cached = cached_of(intses, number, sequences, cache, row)
        scores[number] += rule[4] * cached / prompt
    turn = arrival % count
    best, highest = 0, -inf
    for number in range(turn, turn + count):
        if scores[number % count] > highest:
            best, highest = number % count, scores[number % count]
    return best
