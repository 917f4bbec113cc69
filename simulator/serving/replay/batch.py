"""The scheduler's side of a lane as kernels: `Batcher`, `PagedBlocks` and the scheduler `Chunked` over
columns.

``lane`` is the number of a lane, ``base`` and ``step`` are where the blocks of a lane and of a planned step
begin in ``ints``. See `layout` for the columns.
"""

from __future__ import annotations

from typing import Any

from simulator.serving.replay.cache import grow, release
from simulator.serving.replay.kernels import kernel
from simulator.serving.replay.layout import (
    ADMITTED,
    ADMITTED_NOW,
    BLOCK_TOKENS,
    COMPUTED,
    DECODES,
    END_STEP,
    FIRST_TOKEN_S,
    FREE,
    GENERATED,
    HEAD,
    JOIN_KV,
    JOIN_STEP,
    KEEPS,
    KEY_BITS,
    KV_TOKENS,
    LANE_WIDTH,
    LANES,
    LAST_S,
    MOST_SEQUENCES,
    NEXT_WAITING,
    OUTPUT,
    PLACES,
    PREEMPTED,
    PREEMPTIONS,
    PREFILLING,
    PROMPT,
    QUEUE,
    QUEUED,
    RESERVES,
    RUNNING,
    SEQUENCE_WIDTH,
    SLOTS,
    STEP_DECODES,
    STEP_FIRSTS,
    STEP_KV,
    STEP_LEAVING,
    STEP_PLACES,
    STEP_PREEMPTED,
    STEPS,
    TAIL,
    TARGET,
    TIMES_WIDTH,
    ReplicaColumns,
)
from simulator.serving.replay.lists import drop, least, pop


@kernel
def queue_up(ints: Any, sequences: Any, sequence: int) -> None:
    """Put a new sequence behind all that wait."""
    if ints[QUEUE] == ints[QUEUED]:
        ints[HEAD] = sequence
    else:
        sequences[ints[TAIL] * SEQUENCE_WIDTH + NEXT_WAITING] = sequence
    ints[TAIL] = sequence
    ints[QUEUED] += 1


@kernel
def decode(columns: ReplicaColumns, lane: int, step: int) -> None:
    """Give each decoding sequence a token; while blocks are short, preempt the last admitted."""
    ints, cache, phases = columns.ints, columns.cache, columns.phases
    base, block = LANES + lane * LANE_WIDTH, ints[BLOCK_TOKENS]
    first = lane * block
    need = phases[first + -ints[base + STEPS] % block]
    while need > ints[FREE]:
        preempt(columns, lane, step)
        if not ints[base + DECODES]:
            return
        need = phases[first + -ints[base + STEPS] % block]
    if need:
        grow(ints, cache, need)
    decodes, kv_tokens = ints[base + DECODES], ints[base + KV_TOKENS]
    ints[step + STEP_DECODES] = decodes
    ints[base + KV_TOKENS] = ints[step + STEP_KV] = kv_tokens + decodes
    steps = ints[base + STEPS] + 1
    ints[base + STEPS] = steps
    end_sequences(columns, lane, step, steps)


@kernel
def end_sequences(columns: ReplicaColumns, lane: int, step: int, steps: int) -> None:
    """Let the sequences whose last token appears by a decode step leave with the planned step."""
    ints, sequences, places = columns.ints, columns.sequences, columns.places
    phases, heaps = columns.phases, columns.heaps
    room = ints[SLOTS] + 2
    key = least(heaps, lane, room)
    if key < 0 or key >> KEY_BITS > steps:
        return
    base, block = LANES + lane * LANE_WIDTH, ints[BLOCK_TOKENS]
    leaving = ints[step + STEP_PLACES] + ints[SLOTS]
    while key >= 0 and key >> KEY_BITS <= steps:
        pop(heaps, lane, room)
        sequence = key % MOST_SEQUENCES
        row = sequence * SEQUENCE_WIDTH
        since = sequences[row + JOIN_KV] - sequences[row + JOIN_STEP]
        ints[base + DECODES] -= 1
        ints[base + KV_TOKENS] -= since + (key >> KEY_BITS)
        if not ints[RESERVES]:
            phases[lane * block + since % block] -= 1
        places[leaving + ints[step + STEP_LEAVING]] = sequence
        ints[step + STEP_LEAVING] += 1
        key = least(heaps, lane, room)


@kernel
def preempt(columns: ReplicaColumns, lane: int, step: int) -> None:
    """Free the blocks of the last admitted sequence, and queue it again at the head."""
    ints, sequences, cache = columns.ints, columns.sequences, columns.cache
    places, phases, heaps = columns.places, columns.phases, columns.heaps
    base, block = LANES + lane * LANE_WIDTH, ints[BLOCK_TOKENS]
    steps = ints[base + STEPS]
    while True:
        ints[base + ADMITTED] -= 1
        sequence = places[ints[base + PLACES] + ints[base + ADMITTED]]
        row = sequence * SEQUENCE_WIDTH
        end = sequences[row + END_STEP]
        if end > steps or sequence == ints[base + PREFILLING]:
            break
    ints[step + STEP_PREEMPTED] = 1
    if end > steps:
        since = sequences[row + JOIN_KV] - sequences[row + JOIN_STEP]
        kv_tokens = since + steps
        ints[base + DECODES] -= 1
        ints[base + KV_TOKENS] -= kv_tokens
        if not ints[RESERVES]:
            phases[lane * block + since % block] -= 1
        sequences[row + GENERATED] += steps - sequences[row + JOIN_STEP]
        sequences[row + END_STEP] = -1
        drop(heaps, lane, ints[SLOTS] + 2, (end << KEY_BITS) + sequence)
    else:
        ints[base + PREFILLING] = -1
        kv_tokens = sequences[row + COMPUTED]
    prompt = sequences[row + PROMPT]
    sequences[row + TARGET] = prompt + sequences[row + GENERATED]
    sequences[row + COMPUTED] = 0
    sequences[row + PREEMPTIONS] += 1
    ints[base + RUNNING] -= 1
    ints[ADMITTED_NOW] -= 1
    release(ints, sequences, cache, row, kv_tokens, ints[KEEPS] > 0)
    if ints[RESERVES]:
        reserved = -(-(prompt + sequences[row + OUTPUT]) // block)
        ints[FREE] += reserved - -(-kv_tokens // block)
    places[ints[PREEMPTED]] = sequence
    ints[PREEMPTED] += 1


@kernel
def quiet(ints: Any, phases: Any, heaps: Any, lane: int) -> int:
    """Steps that can follow the last planned one with the same decodes, without asking the scheduler."""
    base, block = LANES + lane * LANE_WIDTH, ints[BLOCK_TOKENS]
    key = least(heaps, lane, ints[SLOTS] + 2)
    if key < 0:
        return 0
    at, decodes, free = ints[base + STEPS], ints[base + DECODES], ints[FREE]
    steps = (key >> KEY_BITS) - at
    if decodes * (steps // block + 1) <= free or ints[RESERVES]:
        return steps
    rounds = free // decodes
    passed, need = rounds * block, rounds * decodes
    while passed < steps:
        need += phases[lane * block + -(at + passed) % block]
        if need > free:
            return passed
        passed += 1
    return steps


@kernel
def extend(columns: ReplicaColumns, lane: int, step: int, steps: int) -> None:
    """Append decode steps to a planned step, which then describes the last of them."""
    ints, cache, phases = columns.ints, columns.cache, columns.phases
    base, block = LANES + lane * LANE_WIDTH, ints[BLOCK_TOKENS]
    decodes, at = ints[base + DECODES], ints[base + STEPS]
    if not ints[RESERVES]:
        first = lane * block
        end, rest = first + -at % block + 1, steps % block
        blocks = steps // block * decodes
        if rest <= end - first:
            blocks += sum(phases[end - rest : end])
        else:
            blocks += sum(phases[first:end]) + sum(phases[end - rest + block : first + block])
        grow(ints, cache, blocks)
    ints[base + KV_TOKENS] += steps * decodes
    ints[step + STEP_KV] += steps * decodes
    ints[base + STEPS] = at + steps
    end_sequences(columns, lane, step, at + steps)


@kernel
def again(columns: ReplicaColumns, lane: int, step: int) -> bool:
    """Turn a planned step into the decode step that follows it; False if too few blocks are free."""
    ints, cache, phases = columns.ints, columns.cache, columns.phases
    base, block = LANES + lane * LANE_WIDTH, ints[BLOCK_TOKENS]
    steps, decodes = ints[base + STEPS], ints[base + DECODES]
    need = phases[lane * block + -steps % block]
    if need > ints[FREE]:
        return False
    grow(ints, cache, need)
    ints[base + KV_TOKENS] += decodes
    ints[step + STEP_KV] += decodes
    ints[base + STEPS] = steps + 1
    end_sequences(columns, lane, step, steps + 1)
    return True


@kernel
def finish(columns: ReplicaColumns, base: int, step: int, now: float) -> None:
    """Let first tokens appear and sequences leave at the end of a step."""
    ints, sequences, cache = columns.ints, columns.sequences, columns.cache
    times, places = columns.times, columns.places
    firsts = ints[step + STEP_PLACES]
    for place in range(ints[step + STEP_FIRSTS]):
        at = places[firsts + place] * TIMES_WIDTH + FIRST_TOKEN_S
        if times[at] != times[at]:
            times[at] = now
    leaving = firsts + ints[SLOTS]
    for place in range(ints[step + STEP_LEAVING]):
        sequence = places[leaving + place]
        row = sequence * SEQUENCE_WIDTH
        kv_tokens = sequences[row + JOIN_KV] + sequences[row + END_STEP] - sequences[row + JOIN_STEP]
        if ints[RESERVES]:
            kv_tokens = sequences[row + PROMPT] + sequences[row + OUTPUT]
        sequences[row + END_STEP] = -1
        ints[base + RUNNING] -= 1
        ints[ADMITTED_NOW] -= 1
        release(ints, sequences, cache, row, kv_tokens, False)
        times[sequence * TIMES_WIDTH + LAST_S] = now
