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
)
from simulator.serving.replay.lists import push
from simulator.serving.replay.prices import chunk_seconds


@kernel
def plan(
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
    step: int,
    now: float,
) -> bool:
    """Plan a lane's next step; False where there is none. See `Scheduler.plan` and `Chunked.fill`."""
    base = LANES + lane * LANE_WIDTH
    waits = whole[PREEMPTED] + whole[QUEUED] - whole[QUEUE]
    fills = waits > 0 or whole[base + PREFILLING] >= 0
    if not fills and not whole[base + DECODES]:
        return False
    while True:
        clear(whole, reals, step)
        prompts_first = fills and whole[PROMPTS_FIRST]
        if whole[base + DECODES] and not prompts_first:
            decode(whole, sequences, cache, places, phases, heaps, lane, step)
        if fills:
            tokens = whole[BUDGET] - whole[step + STEP_DECODES]
            if whole[base + PREFILLING] >= 0:
                tokens = go_on(
                    whole, reals, sequences, cache, places, phases, heaps, prices, marks, lane, step, tokens
                )
            if not whole[step + STEP_PREEMPTED]:
                admit(
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
                    lane,
                    step,
                    tokens,
                    now,
                )
        if prompts_first and whole[base + DECODES] and not whole[step + STEP_CHUNKS]:
            decode(whole, sequences, cache, places, phases, heaps, lane, step)
        begun = whole[step + STEP_DECODES] or whole[step + STEP_CHUNKS]
        if begun or not whole[step + STEP_PREEMPTED]:
            return begun > 0 or whole[step + STEP_LEAVING] > 0
        # All sequences of the step were preempted; their blocks are free now.
        fills = True


@kernel
def clear(whole: Any, reals: Any, step: int) -> None:
    """Empty a planned step."""
    whole[step + STEP_DECODES] = 0
    whole[step + STEP_KV] = 0
    whole[step + STEP_PROMPT] = 0
    whole[step + STEP_CHUNKS] = 0
    whole[step + STEP_PREEMPTED] = 0
    whole[step + STEP_FIRSTS] = 0
    whole[step + STEP_LEAVING] = 0
    reals[whole[step + STEP_REAL]] = 0.0


@kernel
def go_on(
    whole: Any,
    reals: Any,
    sequences: Any,
    cache: Any,
    places: Any,
    phases: Any,
    heaps: Any,
    prices: Any,
    marks: Any,
    lane: int,
    step: int,
    tokens: int,
) -> int:
    """Put the next chunk of the partly computed prompt into the step; returns the tokens left."""
    base = LANES + lane * LANE_WIDTH
    sequence = whole[base + PREFILLING]
    row = sequence * SEQUENCE_WIDTH
    chunk = min(tokens, sequences[row + TARGET] - sequences[row + COMPUTED])
    if chunk <= 0:
        return tokens
    while not hold(whole, sequences, cache, row, sequences[row + COMPUTED] + chunk, 0):
        preempt(whole, sequences, cache, places, phases, heaps, lane, step)
        if whole[base + PREFILLING] != sequence:
            return tokens
    compute(whole, reals, sequences, cache, places, phases, heaps, prices, marks, lane, step, sequence, chunk)
    return tokens - chunk


@kernel
def admit(
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
    step: int,
    tokens: int,
    now: float,
) -> None:
    """Admit waiting sequences, first come first served, while tokens, slots and blocks last."""
    base, block = LANES + lane * LANE_WIDTH, whole[BLOCK_TOKENS]
    while tokens > 0 and whole[base + RUNNING] < whole[SLOTS]:
        again = whole[PREEMPTED] > 0
        if again:
            sequence = places[whole[PREEMPTED] - 1]
        elif whole[QUEUE] < whole[QUEUED]:
            sequence = whole[HEAD]
        else:
            return
        row = sequence * SEQUENCE_WIDTH
        target, cached = sequences[row + TARGET], match(whole, sequences, cache, row)
        chunk = target - cached
        if chunk > tokens:
            if whole[CUTS]:
                chunk = tokens
            elif whole[step + STEP_CHUNKS]:
                return
        if whole[ADMITS_WHOLE]:
            need = 0
            if whole[base + PREFILLING] >= 0:
                other = whole[base + PREFILLING] * SEQUENCE_WIDTH
                need = -(-sequences[other + TARGET] // block) + -sequences[other + COMPUTED] // block
            if need - (-target // block) + -cached // block > whole[FREE]:
                return
        tokens_held = cached + chunk
        if whole[RESERVES]:
            tokens_held = sequences[row + PROMPT] + sequences[row + OUTPUT]
        if not hold(whole, sequences, cache, row, tokens_held, cached):
            return
        if again:
            whole[PREEMPTED] -= 1
        else:
            whole[QUEUE] += 1
            whole[HEAD] = sequences[row + NEXT_WAITING]
        take_slot(whole, sequences, times, places, base, sequence, cached, now)
        compute(
            whole, reals, sequences, cache, places, phases, heaps, prices, marks, lane, step, sequence, chunk
        )
        tokens -= chunk


@kernel
def match(whole: Any, sequences: Any, cache: Any, row: int) -> int:
    """Tokens of a waiting sequence in the prefix cache, or in its blocks that none has taken since its
    preemption."""
    target = sequences[row + TARGET]
    cached = matched(whole, sequences, cache, row, target) * whole[UNIT_TOKENS]
    blocks = sequences[row + GHOST_BLOCKS]
    if blocks <= 0:
        return cached
    left = blocks - max(whole[TAKEN] - sequences[row + GHOST_TAKEN] - sequences[row + GHOST_FREE], 0)
    most = (target - 1) // whole[BLOCK_TOKENS]
    return max(max(min(left, most), 0) * whole[BLOCK_TOKENS], cached)


@kernel
def take_slot(
    whole: Any, sequences: Any, times: Any, places: Any, base: int, sequence: int, cached: int, now: float
) -> None:
    """Give a waiting sequence a slot; ``cached`` of its tokens are in the cache."""
    row, begun = sequence * SEQUENCE_WIDTH, sequence * TIMES_WIDTH + SCHEDULED_S
    whole[base + RUNNING] += 1
    whole[ADMITTED_NOW] += 1
    sequences[row + COMPUTED] = cached
    if times[begun] != times[begun]:
        times[begun] = now
        sequences[row + CACHED] = cached
    first, count = whole[base + PLACES], whole[base + ADMITTED]
    if count > 2 * whole[base + RUNNING] + 64:
        inside = 0
        for place in range(count):
            other = places[first + place]
            if sequences[other * SEQUENCE_WIDTH + END_STEP] >= 0 or other == whole[base + PREFILLING]:
                places[first + inside] = other
                inside += 1
        count = inside
    places[first + count] = sequence
    whole[base + ADMITTED] = count + 1


@kernel
def compute(
    whole: Any,
    reals: Any,
    sequences: Any,
    cache: Any,
    places: Any,
    phases: Any,
    heaps: Any,
    prices: Any,
    marks: Any,
    lane: int,
    step: int,
    sequence: int,
    tokens: int,
) -> None:
    """Put the next tokens of an admitted sequence into the step; after the last it joins the decodes."""
    base, row = LANES + lane * LANE_WIDTH, sequence * SEQUENCE_WIDTH
    before, target = sequences[row + COMPUTED], sequences[row + TARGET]
    reals[whole[step + STEP_REAL]] += chunk_seconds(prices, marks, tokens, before)
    whole[step + STEP_CHUNKS] += 1
    whole[step + STEP_PROMPT] += tokens
    sequences[row + COMPUTED] = before + tokens
    enter_units(whole, sequences, cache, row, before + tokens)
    if before + tokens < target:
        whole[base + PREFILLING] = sequence
        return
    if whole[base + PREFILLING] == sequence:
        whole[base + PREFILLING] = -1
    firsts = whole[step + STEP_PLACES]
    places[firsts + whole[step + STEP_FIRSTS]] = sequence
    whole[step + STEP_FIRSTS] += 1
    steps = whole[base + STEPS]
    generated = sequences[row + GENERATED] + 1
    end = steps + sequences[row + OUTPUT] - generated
    sequences[row + GENERATED] = generated
    sequences[row + JOIN_STEP] = steps
    sequences[row + JOIN_KV] = target
    if end <= steps:
        sequences[row + END_STEP] = steps
        places[firsts + whole[SLOTS] + whole[step + STEP_LEAVING]] = sequence
        whole[step + STEP_LEAVING] += 1
        return
    sequences[row + END_STEP] = end
    whole[base + DECODES] += 1
    whole[base + KV_TOKENS] += target
    if not whole[RESERVES]:
        phases[lane * whole[BLOCK_TOKENS] + (target - steps) % whole[BLOCK_TOKENS]] += 1
    push(heaps, lane, whole[SLOTS] + 2, (end << KEY_BITS) + sequence)
