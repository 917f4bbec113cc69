"""The columns of one replica, and its run over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.serving.question.options import EngineOptions
from simulator.serving.replay import (
    batch,
    cache,
    layout,
    lists,
    plans,
    prices,
    rounds,
    routed,
    single,
    staged,
)
from simulator.serving.replay.kernels import Compiler
from simulator.serving.replay.layout import (
    ADMITS_WHOLE,
    AHEAD,
    ARRIVALS,
    BLOCK_TOKENS,
    BUDGET,
    CACHED,
    CHUNKS_S,
    COUNT,
    CUTS,
    END_STEP,
    EXIT_S,
    FIRST_UNIT,
    FREE,
    GHOST_BLOCKS,
    KEEPS,
    KV_BLOCKS,
    LANE_COUNT,
    LANE_COUNT_S,
    LANE_REALS,
    LANE_REALS_WIDTH,
    LANE_WIDTH,
    LANES,
    LAST_IDLE,
    NEXT_IDLE,
    NEXT_S,
    NO_UNIT,
    ORDER,
    OUTPUT,
    PLACES,
    PREEMPTIONS,
    PREFILLING,
    PROMPT,
    PROMPTS_FIRST,
    QUEUED_S,
    REPLICA,
    RESERVES,
    ROW_COUNT,
    SEQUENCE_WIDTH,
    SLOTS,
    STEP,
    STEP_PLACES,
    STEP_REAL,
    STEP_WIDTH,
    TARGET,
    TIMES_WIDTH,
    TOKEN_S,
    UNIT_BLOCKS,
    UNIT_COUNT,
    UNIT_TOKENS,
    USERS,
)
from simulator.serving.replay.lists import WIDTH, WRITTEN_OUT
from simulator.serving.replay.prices import TableColumns
from simulator.serving.replica.meter import ROWS

MODULES = (layout, lists, prices, cache, batch, plans, single, rounds, staged, routed)
KEPT_ROWS = 32 * ROWS
"""Rows of steps that are kept before they are summed."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Units:
    """Units of the prefixes of sequences, each a number from 0 on.

    Attributes:
        ids: units of all sequences, one sequence behind the other.
        first, count: where each sequence's begin, and how many there are, shape (sequences,).
        different: number of different units.
        tokens, blocks: of a unit.
    """

    ids: Ints
    first: Ints
    count: Ints
    different: int
    tokens: int
    blocks: int


def cache_columns(units: Units, replicas: int = 1) -> Ints:
    """Empty prefix caches: units of the sequences, then of each replica the users of each unit (-1: not
    cached) and the ring of idle units, which only its end is in."""
    ring = np.zeros(2 * (units.different + 1), np.int64)
    ring[units.different :: units.different + 1] = units.different
    empty = np.concatenate([np.full(units.different, -1), ring])
    return np.concatenate([units.ids, np.tile(empty, replicas)]).astype(np.int64)


def sequence_columns(
    queued_s: Floats, prompts: Ints, outputs: Ints, units: Units | None = None
) -> tuple[Ints, Floats]:
    """Sequences that no replica has seen, in order of arrival: ``sequences`` and ``times``, a row each."""
    sequences = np.zeros((len(prompts), SEQUENCE_WIDTH), np.int64)
    sequences[:, PROMPT] = sequences[:, TARGET] = prompts
    sequences[:, OUTPUT] = outputs
    sequences[:, END_STEP] = sequences[:, GHOST_BLOCKS] = -1
    if units is not None:
        sequences[:, FIRST_UNIT], sequences[:, UNIT_COUNT] = units.first, units.count
    times = np.full((len(prompts), TIMES_WIDTH), np.nan)
    times[:, QUEUED_S] = queued_s
    return sequences, times


def state_columns(
    options: EngineOptions,
    lanes: int,
    slots: int,
    free: int,
    arrivals: int,
    prompts_first: bool = False,
    always_cuts: bool = False,
    units: Units | None = None,
    number: int = 0,
) -> tuple[Ints, Floats, Ints]:
    """An idle replica: ``ints``, ``reals`` and ``places``.

    Args:
        options: of the engine.
        lanes, slots: micro batches in flight, and the sequences of each.
        free: KV blocks.
        arrivals: sequences that will arrive.
        prompts_first: whether steps compute prompts alone while any fit.
        always_cuts: whether prompts are cut to fit, whatever the options say.
        units: of the prefixes, where the replica has a prefix cache.
        number: of its cache among those of `cache_columns`.
    """
    ints = np.zeros(LANES + lanes * LANE_WIDTH, np.int64)
    reals = np.zeros(LANE_REALS + lanes * LANE_REALS_WIDTH)
    rules = {
        BLOCK_TOKENS: options.block_tokens,
        SLOTS: slots,
        BUDGET: options.token_budget,
        RESERVES: options.preemption == "none",
        KEEPS: options.prefix_caching,
        CUTS: always_cuts or options.chunked_prefill,
        ADMITS_WHOLE: options.admits_whole,
        AHEAD: options.asynchronous,
        PROMPTS_FIRST: prompts_first,
        LANE_COUNT: lanes,
        ARRIVALS: arrivals,
        FREE: free,
        KV_BLOCKS: free,
        COUNT: 1,
    }
    if units is not None:
        ring = units.different
        users = len(units.ids) + number * (3 * ring + 2)
        rules |= {UNIT_TOKENS: units.tokens, UNIT_BLOCKS: units.blocks, NO_UNIT: ring, USERS: users}
        rules |= {NEXT_IDLE: users + ring, LAST_IDLE: users + 2 * ring + 1}
    for at, value in rules.items():
        ints[at] = value
    reals[NEXT_S], reals[TOKEN_S] = inf, -1.0
    # Preempted sequences that wait, the order of the lanes, then the lists of each lane.
    ints[ORDER] = at = lanes * slots + 1
    at += lanes
    for lane in range(lanes):
        base, real = LANES + lane * LANE_WIDTH, LANE_REALS + lane * LANE_REALS_WIDTH
        ints[base + PREFILLING], ints[base + LANE_COUNT_S], reals[real + EXIT_S] = -1, 1, inf
        ints[base + PLACES], at = at, at + 2 * slots + 66
        for number in range(2):
            step = base + STEP + number * STEP_WIDTH
            ints[step + STEP_PLACES], at = at, at + 2 * slots
            ints[step + STEP_REAL] = real + CHUNKS_S + number
    return ints, reals, np.zeros(at, np.int64)


INTS, FLOATS, NUMBER = "int64[::1]", "float64[::1]", "int64"
SINGLE, STAGED = "run_single", "run_staged"
ROUTED = "run_routed"
MANY_INTS, MANY_FLOATS = "int64[:, ::1]", "float64[:, ::1]"
_ALONE = (INTS, FLOATS, INTS, INTS, FLOATS, INTS, INTS, INTS, FLOATS, INTS, FLOATS, NUMBER)
"""Whole, reals, sequences, cache, times, places, phases, heaps, prices, marks, rows, room."""
_ROUTED = (
    *(INTS, FLOATS, FLOATS, FLOATS, FLOATS, MANY_INTS, MANY_FLOATS, INTS, INTS, FLOATS, MANY_INTS),
    *(MANY_INTS, MANY_INTS, FLOATS, INTS, MANY_FLOATS, NUMBER),
)
COMPILER = Compiler(MODULES, WRITTEN_OUT, {SINGLE: _ALONE, STAGED: _ALONE, ROUTED: _ROUTED})
PLAIN: dict[str, Callable[..., Any]] = {
    SINGLE: single.run_single,
    STAGED: staged.run_staged,
    ROUTED: routed.run_routed,
}
"""The loops over lists."""
LOADED, CACHED_BEFORE, FIRST = 200, 10_000, 200_000
"""Requests from which compiled kernels are sooner done than plain loops: where they are loaded; where an
earlier run compiled them (reading takes 0.4 s); where nothing is compiled (20 s)."""


class Patience:
    """Requests of this process that ran plain: many short runs are worth loading kernels, as one long one
    is."""

    def __init__(self) -> None:
        self._plain = 0

    def runs_fast(self, name: str, requests: int) -> bool:
        """Whether to run requests compiled; they count as plain otherwise."""
        if not COMPILER.usable() or requests < LOADED:
            return False
        if COMPILER.ready(name):
            return True
        self._plain += requests
        if self._plain < CACHED_BEFORE:
            return False
        return self._plain >= (CACHED_BEFORE if COMPILER.cached(name) else FIRST)


PATIENCE = Patience()


def run_replica(
    state: tuple[Ints, Floats, Ints],
    sequences: Ints,
    times: Floats,
    cached: Ints,
    table: TableColumns,
    add_up: Callable[[Floats], None],
    loop: Callable[..., bool],
    room: int = KEPT_ROWS,
) -> tuple[Floats, Ints]:
    """Run a replica from its first arrival until it is idle.

    Args:
        state: `state_columns`.
        sequences, times: `sequence_columns`.
        cached: `cache_columns`.
        table: prices of steps.
        add_up: called with rows of steps, shape (rows, 11), at most ``room`` at a time.
        loop: over lists (one of ``PLAIN``), or compiled.
        room: rows that are kept before they are summed.

    Returns:
        Times of the sequences (queued, scheduled, first and last token, s; shape (sequences, 4)), and their
        cached tokens and preemptions, shape (sequences, 2).
    """
    ints, reals, places = state
    fast = loop not in PLAIN.values()
    lanes, slots, block = int(ints[LANE_COUNT]), int(ints[SLOTS]), int(ints[BLOCK_TOKENS])
    columns: list[Any] = [
        ints,
        reals,
        sequences.ravel(),
        cached,
        times.ravel(),
        places,
        np.zeros(lanes * block, np.int64),
    ]
    rows: Any = np.empty(room * WIDTH) if fast else []
    heaps: Any = np.zeros(lanes * (slots + 2), np.int64) if fast else [[] for _ in range(lanes)]
    tables: list[Any] = [table.prices, table.marks]
    if not fast:
        columns = [column.tolist() for column in columns]
        tables = table.lists
    done = False
    while not done:
        done = loop(*columns, heaps, *tables, rows, room)
        count = int(columns[0][ROW_COUNT])
        if count:
            add_up(np.array(rows[: count * WIDTH]).reshape(-1, WIDTH))
        columns[0][ROW_COUNT] = 0
        if not fast:
            rows.clear()
    sequences, times = np.asarray(columns[2]), np.asarray(columns[4])
    seen = sequences.reshape(-1, SEQUENCE_WIDTH)[:, [CACHED, PREEMPTIONS]]
    return times.reshape(-1, TIMES_WIDTH), seen


def run_fleet(
    states: list[tuple[Ints, Floats, Ints]],
    sequences: Ints,
    times: Floats,
    sent_s: Floats,
    cached: Ints,
    table: TableColumns,
    rule: Floats,
    draws: Floats,
    reads_kv: bool,
    add_up: Callable[[int, Floats], None],
    loop: Callable[..., int],
) -> tuple[Floats, Ints]:
    """Run replicas of one kind whose router looks at them.

    Args:
        states: `state_columns` of each.
        sequences, times: `sequence_columns` of all requests.
        sent_s: when each is sent to the fleet, s.
        cached: `cache_columns`.
        table: prices of steps.
        rule, draws, reads_kv: of the router, as `run_routed` takes them.
        add_up: called with the number of a replica and rows of its steps, shape (rows, 11).
        loop: over lists (one of ``PLAIN``), or compiled.

    Returns:
        Times as `run_replica`; cached tokens, preemptions and replica of each sequence, shape (sequences, 3).
    """
    fast, count = loop not in PLAIN.values(), len(states)
    first = states[0][0]
    slots, block = int(first[SLOTS]), int(first[BLOCK_TOKENS])
    turns = np.array([0, -1, len(sent_s), reads_kv])
    intses, realses, placeses = (np.stack(parts) for parts in zip(*states, strict=True))
    phaseses = np.zeros((count, block), np.int64)
    columns: list[Any] = [turns, rule, draws, np.zeros(count), sent_s, intses, realses]
    columns += [sequences.ravel(), cached, times.ravel(), placeses, phaseses]
    # A look may keep one more row between the ends of two steps.
    rowses: Any = np.empty((count, (ROWS + 2) * WIDTH)) if fast else [[] for _ in states]
    heapses: Any = np.zeros((count, slots + 2), np.int64) if fast else [[[]] for _ in states]
    tables: list[Any] = [table.prices, table.marks]
    if not fast:
        columns = [column.tolist() for column in columns]
        tables = table.lists
    number = 0
    while number >= 0:
        number = int(loop(*columns, heapses, *tables, rowses, ROWS))
        for replica in range(count) if number < 0 else (number,):
            count_of_rows = int(columns[5][replica][ROW_COUNT])
            if count_of_rows:
                add_up(replica, np.array(rowses[replica][: count_of_rows * WIDTH]).reshape(-1, WIDTH))
            columns[5][replica][ROW_COUNT] = 0
            if not fast:
                rowses[replica].clear()
    seen = np.asarray(columns[7]).reshape(-1, SEQUENCE_WIDTH)[:, [CACHED, PREEMPTIONS, REPLICA]]
    return np.asarray(columns[9]).reshape(-1, TIMES_WIDTH), seen
