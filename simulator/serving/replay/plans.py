"""What a lane's next step computes as kernels: the scheduler `Chunked` and admission over columns."""

from __future__ import annotations

from typing import Any

from simulator.serving.replay.batch import decode, preempt
from simulator.serving.replay.cache import enter_units, hold, matched
from simulator.serving.replay.kernels import kernel
from simulator.serving.replay.layout import (
    ADMITS_WHOLE,
    ADMITTED,
    ADMITTED_NOW,
    BLOCK_TOKENS,
    BUDGET,
    CACHED,
    COMPUTED,
    CUTS,
    DECODES,
    END_STEP,
    FREE,
    GENERATED,
    GHOST_BLOCKS,
    GHOST_FREE,
    GHOST_TAKEN,
    HEAD,
    JOIN_KV,
    JOIN_STEP,
    KEY_BITS,
    KV_TOKENS,
    LANE_WIDTH,
    LANES,
    NEXT_WAITING,
    OUTPUT,
    PLACES,
    PREEMPTED,
    PREFILLING,
    PROMPT,
    PROMPTS_FIRST,
    QUEUE,
    QUEUED,
    RESERVES,
    RUNNING,
    SCHEDULED_S,
    SEQUENCE_WIDTH,
    SLOTS,
    STEP_CHUNKS,
    STEP_DECODES,
    STEP_FIRSTS,
    STEP_KV,
    STEP_LEAVING,
    STEP_PLACES,
    STEP_PREEMPTED,
    STEP_PROMPT,
    STEP_REAL,
    STEPS,
    TAKEN,
    TARGET,
    TIMES_WIDTH,
    UNIT_TOKENS,
    ReplicaColumns,
)
from simulator.serving.replay.lists import push
from simulator.serving.replay.prices import chunk_seconds


@kernel
def plan(columns: ReplicaColumns, lane: int, step: int, now: float) -> bool:
    """Plan a lane's next step; False where there is none. See `Scheduler.plan` and `Chunked.fill`."""
    ints, reals = columns.ints, columns.reals
    base = LANES + lane * LANE_WIDTH
    waits = ints[PREEMPTED] + ints[QUEUED] - ints[QUEUE]
    fills = waits > 0 or ints[base + PREFILLING] >= 0
    if not fills and not ints[base + DECODES]:
        return False
    while True:
        clear(ints, reals, step)
        prompts_first = fills and ints[PROMPTS_FIRST]
        if ints[base + DECODES] and not prompts_first:
            decode(columns, lane, step)
        if fills:
            tokens = ints[BUDGET] - ints[step + STEP_DECODES]
            if ints[base + PREFILLING] >= 0:
                tokens = go_on(columns, lane, step, tokens)
            if not ints[step + STEP_PREEMPTED]:
                admit(columns, lane, step, tokens, now)
        if prompts_first and ints[base + DECODES] and not ints[step + STEP_CHUNKS]:
            decode(columns, lane, step)
        begun = ints[step + STEP_DECODES] or ints[step + STEP_CHUNKS]
        if begun or not ints[step + STEP_PREEMPTED]:
            return begun > 0 or ints[step + STEP_LEAVING] > 0
        # All sequences of the step were preempted; their blocks are free now.
        fills = True


@kernel
def clear(ints: Any, reals: Any, step: int) -> None:
    """Empty a planned step."""
    ints[step + STEP_DECODES] = 0
    ints[step + STEP_KV] = 0
    ints[step + STEP_PROMPT] = 0
    ints[step + STEP_CHUNKS] = 0
    ints[step + STEP_PREEMPTED] = 0
    ints[step + STEP_FIRSTS] = 0
    ints[step + STEP_LEAVING] = 0
    reals[ints[step + STEP_REAL]] = 0.0


@kernel
def go_on(columns: ReplicaColumns, lane: int, step: int, tokens: int) -> int:
    """Put the next chunk of the partly computed prompt into the step; returns the tokens left."""
    ints, sequences, cache = columns.ints, columns.sequences, columns.cache
    base = LANES + lane * LANE_WIDTH
    sequence = ints[base + PREFILLING]
    row = sequence * SEQUENCE_WIDTH
    chunk = min(tokens, sequences[row + TARGET] - sequences[row + COMPUTED])
    if chunk <= 0:
        return tokens
    while not hold(ints, sequences, cache, row, sequences[row + COMPUTED] + chunk, 0):
        preempt(columns, lane, step)
        if ints[base + PREFILLING] != sequence:
            return tokens
    compute(columns, lane, step, sequence, chunk)
    return tokens - chunk


@kernel
def admit(columns: ReplicaColumns, lane: int, step: int, tokens: int, now: float) -> None:
    """Admit waiting sequences, first come first served, while tokens, slots and blocks last."""
    ints, sequences, cache = columns.ints, columns.sequences, columns.cache
    times, places = columns.times, columns.places
    base, block = LANES + lane * LANE_WIDTH, ints[BLOCK_TOKENS]
    while tokens > 0 and ints[base + RUNNING] < ints[SLOTS]:
        again = ints[PREEMPTED] > 0
        if again:
            sequence = places[ints[PREEMPTED] - 1]
        elif ints[QUEUE] < ints[QUEUED]:
            sequence = ints[HEAD]
        else:
            return
        row = sequence * SEQUENCE_WIDTH
        target, cached = sequences[row + TARGET], match(ints, sequences, cache, row)
        chunk = target - cached
        if chunk > tokens:
            if ints[CUTS]:
                chunk = tokens
            elif ints[step + STEP_CHUNKS]:
                return
        if ints[ADMITS_WHOLE]:
            need = 0
            if ints[base + PREFILLING] >= 0:
                other = ints[base + PREFILLING] * SEQUENCE_WIDTH
                need = -(-sequences[other + TARGET] // block) + -sequences[other + COMPUTED] // block
            if need - (-target // block) + -cached // block > ints[FREE]:
                return
        tokens_held = cached + chunk
        if ints[RESERVES]:
            tokens_held = sequences[row + PROMPT] + sequences[row + OUTPUT]
        if not hold(ints, sequences, cache, row, tokens_held, cached):
            return
        if again:
            ints[PREEMPTED] -= 1
        else:
            ints[QUEUE] += 1
            ints[HEAD] = sequences[row + NEXT_WAITING]
        take_slot(ints, sequences, times, places, base, sequence, cached, now)
        compute(columns, lane, step, sequence, chunk)
        tokens -= chunk


@kernel
def match(ints: Any, sequences: Any, cache: Any, row: int) -> int:
    """Tokens of a waiting sequence in the prefix cache, or in its blocks that none has taken since its
    preemption."""
    target = sequences[row + TARGET]
    cached = matched(ints, sequences, cache, row, target) * ints[UNIT_TOKENS]
    blocks = sequences[row + GHOST_BLOCKS]
    if blocks <= 0:
        return cached
    left = blocks - max(ints[TAKEN] - sequences[row + GHOST_TAKEN] - sequences[row + GHOST_FREE], 0)
    limit = (target - 1) // ints[BLOCK_TOKENS]
    return max(max(min(left, limit), 0) * ints[BLOCK_TOKENS], cached)


@kernel
def take_slot(
    ints: Any, sequences: Any, times: Any, places: Any, base: int, sequence: int, cached: int, now: float
) -> None:
    """Give a waiting sequence a slot; ``cached`` of its tokens are in the cache."""
    row, begun = sequence * SEQUENCE_WIDTH, sequence * TIMES_WIDTH + SCHEDULED_S
    ints[base + RUNNING] += 1
    ints[ADMITTED_NOW] += 1
    sequences[row + COMPUTED] = cached
    if times[begun] != times[begun]:
        times[begun] = now
        sequences[row + CACHED] = cached
    first, count = ints[base + PLACES], ints[base + ADMITTED]
    if count > 2 * ints[base + RUNNING] + 64:
        inside = 0
        for place in range(count):
            other = places[first + place]
            if sequences[other * SEQUENCE_WIDTH + END_STEP] >= 0 or other == ints[base + PREFILLING]:
                places[first + inside] = other
                inside += 1
        count = inside
    places[first + count] = sequence
    ints[base + ADMITTED] = count + 1


@kernel
def compute(columns: ReplicaColumns, lane: int, step: int, sequence: int, tokens: int) -> None:
    """Put the next tokens of an admitted sequence into the step; after the last it joins the decodes."""
    ints, reals, sequences = columns.ints, columns.reals, columns.sequences
    cache, places, phases = columns.cache, columns.places, columns.phases
    heaps, prices, marks = columns.heaps, columns.prices, columns.marks
    base, row = LANES + lane * LANE_WIDTH, sequence * SEQUENCE_WIDTH
    before, target = sequences[row + COMPUTED], sequences[row + TARGET]
    reals[ints[step + STEP_REAL]] += chunk_seconds(prices, marks, tokens, before)
    ints[step + STEP_CHUNKS] += 1
    ints[step + STEP_PROMPT] += tokens
    sequences[row + COMPUTED] = before + tokens
    enter_units(ints, sequences, cache, row, before + tokens)
    if before + tokens < target:
        ints[base + PREFILLING] = sequence
        return
    if ints[base + PREFILLING] == sequence:
        ints[base + PREFILLING] = -1
    firsts = ints[step + STEP_PLACES]
    places[firsts + ints[step + STEP_FIRSTS]] = sequence
    ints[step + STEP_FIRSTS] += 1
    steps = ints[base + STEPS]
    generated = sequences[row + GENERATED] + 1
    end = steps + sequences[row + OUTPUT] - generated
    sequences[row + GENERATED] = generated
    sequences[row + JOIN_STEP] = steps
    sequences[row + JOIN_KV] = target
    if end <= steps:
        sequences[row + END_STEP] = steps
        places[firsts + ints[SLOTS] + ints[step + STEP_LEAVING]] = sequence
        ints[step + STEP_LEAVING] += 1
        return
    sequences[row + END_STEP] = end
    ints[base + DECODES] += 1
    ints[base + KV_TOKENS] += target
    if not ints[RESERVES]:
        phases[lane * ints[BLOCK_TOKENS] + (target - steps) % ints[BLOCK_TOKENS]] += 1
    push(heaps, lane, ints[SLOTS] + 2, (end << KEY_BITS) + sequence)
