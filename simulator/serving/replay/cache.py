"""KV blocks of a replica as kernels: `PagedBlocks` and `PrefixBlocks` over columns.

Ids of prefix units are numbered before the run, and a sequence always holds the first of its units. So a
cache is a count of users by unit, and a ring of idle units in the order of their last use. Without a prefix
cache no sequence has units.
"""

from __future__ import annotations

from typing import Any

from simulator.serving.replay.kernels import kernel
from simulator.serving.replay.layout import (
    BLOCK_TOKENS,
    BLOCKS,
    FIRST_UNIT,
    FREE,
    GHOST_BLOCKS,
    GHOST_FREE,
    GHOST_TAKEN,
    IDLE_COUNT,
    LAST_IDLE,
    NEXT_IDLE,
    NO_UNIT,
    TAKEN,
    TARGET,
    UNIT_BLOCKS,
    UNIT_COUNT,
    UNIT_TOKENS,
    UNITS_HELD,
    USERS,
)


@kernel
def matched(ints: Any, sequences: Any, cache: Any, row: int, tokens: int) -> int:
    """First units of a sequence that the cache holds; the last of its tokens is always computed."""
    count = sequences[row + UNIT_COUNT]
    if not count:
        return 0
    limit = min((tokens - 1) // ints[UNIT_TOKENS], count)
    return leading(cache, ints[USERS], sequences[row + FIRST_UNIT], limit)


@kernel
def leading(cache: Any, users: int, first: int, limit: int) -> int:
    """How many of the units from ``first`` on a cache holds, up to the first that it lacks."""
    count = 0
    while count < limit and cache[users + cache[first + count]] >= 0:
        count += 1
    return count


@kernel
def grow(ints: Any, cache: Any, blocks: int) -> None:
    """Take blocks that are free; evicts idle units when no other block is free."""
    ints[FREE] -= blocks
    ints[TAKEN] += blocks
    while ints[IDLE_COUNT] * ints[UNIT_BLOCKS] > ints[FREE]:
        unit = cache[ints[NEXT_IDLE] + ints[NO_UNIT]]
        unlink(ints, cache, unit)
        cache[ints[USERS] + unit] = -1


@kernel
def unlink(ints: Any, cache: Any, unit: int) -> None:
    """Take a unit out of the ring of idle ones."""
    following, before = ints[NEXT_IDLE], ints[LAST_IDLE]
    later, earlier = cache[following + unit], cache[before + unit]
    cache[following + earlier] = later
    cache[before + later] = earlier
    ints[IDLE_COUNT] -= 1


@kernel
def use_unit(ints: Any, cache: Any, unit: int) -> None:
    """Count a user of a cached unit."""
    users = ints[USERS] + unit
    if cache[users] == 0:
        unlink(ints, cache, unit)
        ints[FREE] -= ints[UNIT_BLOCKS]
    cache[users] += 1


@kernel
def leave_unit(ints: Any, cache: Any, unit: int) -> None:
    """Count a user less; without users a unit is idle, the last to be evicted."""
    users = ints[USERS] + unit
    cache[users] -= 1
    if cache[users] > 0:
        return
    following, before, ring = ints[NEXT_IDLE], ints[LAST_IDLE], ints[NO_UNIT]
    last = cache[before + ring]
    cache[following + last] = unit
    cache[before + unit] = last
    cache[following + unit] = ring
    cache[before + ring] = unit
    ints[IDLE_COUNT] += 1
    ints[FREE] += ints[UNIT_BLOCKS]


@kernel
def hold(ints: Any, sequences: Any, cache: Any, row: int, tokens: int, cached: int) -> bool:
    """Take the blocks of a sequence's first tokens; False (and none) if too few are free.

    Args:
        ints, sequences, cache: columns.
        row: of the sequence.
        tokens: the tokens.
        cached: of a sequence to admit, the tokens that were found.
    """
    units_held, shared, woken = sequences[row + UNITS_HELD], 0, 0
    first, users, size = sequences[row + FIRST_UNIT], ints[USERS], ints[UNIT_BLOCKS]
    if cached and not units_held:
        shared = matched(ints, sequences, cache, row, sequences[row + TARGET])
        for place in range(shared):
            if cache[users + cache[first + place]] == 0:
                woken += size
    need = -(-tokens // ints[BLOCK_TOKENS]) - sequences[row + BLOCKS] - (units_held + shared) * size
    if max(need, 0) + woken > ints[FREE]:
        return False
    for place in range(shared):
        use_unit(ints, cache, cache[first + place])
    sequences[row + UNITS_HELD] = units_held + shared
    if need > 0:
        grow(ints, cache, need)
        sequences[row + BLOCKS] += need
    return True


@kernel
def enter_units(ints: Any, sequences: Any, cache: Any, row: int, tokens: int) -> None:
    """Turn a sequence's own blocks into shared units; merge those that another sequence entered."""
    count = sequences[row + UNIT_COUNT]
    if not count:
        return
    first, units_held, size = sequences[row + FIRST_UNIT], sequences[row + UNITS_HELD], ints[UNIT_BLOCKS]
    limit = min(tokens // ints[UNIT_TOKENS], count)
    while units_held < limit:
        unit = cache[first + units_held]
        if cache[ints[USERS] + unit] >= 0:
            use_unit(ints, cache, unit)
            ints[FREE] += size
        else:
            cache[ints[USERS] + unit] = 1
        units_held += 1
        sequences[row + BLOCKS] -= size
    sequences[row + UNITS_HELD] = units_held


@kernel
def release(ints: Any, sequences: Any, cache: Any, row: int, tokens: int, keeps: bool) -> None:
    """Free all blocks of a sequence that holds ``tokens`` tokens; its units stay, idle.

    ``keeps`` notes which full blocks it leaves behind.
    """
    enter_units(ints, sequences, cache, row, tokens)
    if keeps:
        sequences[row + GHOST_TAKEN] = ints[TAKEN]
        sequences[row + GHOST_FREE] = ints[FREE]
        sequences[row + GHOST_BLOCKS] = tokens // ints[BLOCK_TOKENS]
    units_held, first = sequences[row + UNITS_HELD], sequences[row + FIRST_UNIT]
    private = max(-(-tokens // ints[BLOCK_TOKENS]) - units_held * ints[UNIT_BLOCKS], 0)
    for place in range(units_held - 1, -1, -1):
        leave_unit(ints, cache, cache[first + place])
    ints[FREE] += private
    sequences[row + UNITS_HELD] = 0
    sequences[row + BLOCKS] = 0
