"""Deployments to show: the one to launch, the best, and launches that need less of an engine.

The rows behind the best one are mostly the same launch with another draft length or degree. A reader chooses
between launches: the plainest, the smallest replica, the most measured one, and what each lever of the best
one brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct
from planner.serving.preferred import Measured, preferred
from planner.serving.roles import Phase
from planner.serving.scored_deployments import Scores
from planner.serving.shapes import ReplicaShape

Ints = NDArray[np.int64]

LEVERS = (
    *("speculation", "data-parallel attention", "pipeline stages", "disaggregation"),
    "attention-FFN disaggregation",
)
"""What a launch may do without, by bit. Sharded experts need no more than a flag, on the same ranks."""
APART, ATTENTION = (1 << LEVERS.index(name) for name in LEVERS[3:])
MEASURED_LEVER = "data-parallel attention"
"""The only lever that the measured servers of the fits have."""
STEADY_ERROR = 0.023
"""Median error of the steady state's largest rate against the event engine, over thirty questions
(``python -m benchmarks.serving_refined``). Rows closer than that are not told apart."""
FIRST, BEST, PLAIN, SMALL, PROVEN, BESIDE, NEXT = (
    "first choice",
    "best figure",
    "plainest",
    "smallest replica",
    "most measured servers",
    "best with attention apart",
    "next in the ranking",
)


def chosen_rows(
    table: Scores, order: Ints, top: int, measured: Measured | None = None, sure: int | None = None
) -> tuple[list[int], list[str]]:
    """Rows to show, the first choice first, and why each is shown.

    After the first choice: the best row, the best without any lever, the smallest replica without any, the
    layout with most measured servers, the best rows as the levers of the best go one by one, and the ranking.

    Args:
        table: all rows.
        order: rows that meet the targets, the best first.
        top: rows to return.
        measured: what measured servers say; without it the best row is the first choice.
        sure: leading rows of ``order`` among which the first choice is; by default all.
    """
    by_layout: dict[tuple[int, ...], tuple[int, str]] = {}
    for row, why in _wanted(table, order, measured, len(order) if sure is None else sure):
        if len(by_layout) == top:
            break
        by_layout.setdefault(table.layout(row), (row, why))
    place = np.empty(len(table), np.int64)
    place[order] = np.arange(len(order))
    first, *others = by_layout.values()
    rows = [first, *sorted(others, key=lambda row_reason: int(place[row_reason[0]]))]
    return [row for row, _ in rows], [why for _, why in rows]


def _wanted(table: Scores, order: Ints, measured: Measured | None, sure: int) -> Iterator[tuple[int, str]]:
    """Rows in the order in which they are wanted; layouts may repeat."""
    levers = _levers(table)[order]
    yield _first(table, order[:sure], levers[:sure], measured), FIRST
    yield int(order[0]), BEST
    apart = order[levers & ATTENTION > 0]
    if len(apart):
        yield int(apart[0]), BESIDE
    plain = order[levers == 0]
    if len(plain):
        yield _simplest(table, plain), PLAIN
        sizes = _of_one_pool(table, plain, lambda shape: shape.devices)
        yield int(plain[np.argmin(sizes)]), SMALL
    together = order[table.second[order] < 0]
    if measured is not None and len(together):
        counts = _of_one_pool(table, together, measured.rows)
        if counts.max() > 0:
            yield int(together[np.argmax(counts)]), PROVEN
    own_levers = int(levers[0])
    for left in _paths(table, order, levers, own_levers):
        words = " and ".join(name for bit, name in enumerate(LEVERS) if (own_levers & ~left) >> bit & 1)
        yield _simplest(table, order[levers == left]), f"without {words}"
    for row in order:
        yield int(row), NEXT


def _first(table: Scores, order: Ints, levers: Ints, measured: Measured | None) -> int:
    """The row that one would launch."""
    if measured is None:
        return int(order[0])
    rows, alone = np.zeros(len(order), np.int64), table.second[order] < 0
    rows[alone] = _of_one_pool(table, order[alone], measured.rows)
    bits = [bit for bit, name in enumerate(LEVERS) if name != MEASURED_LEVER]
    composed = np.stack([levers >> bit & 1 for bit in bits]).sum(axis=0, dtype=np.int64)
    return int(order[preferred(table.value[order], composed, rows, measured.band)])


def _paths(table: Scores, order: Ints, levers: Ints, own_levers: int) -> Iterator[int]:
    """Sets of levers below ``own_levers``: what levers leave, one gone after another; then the rest."""
    present = [int(bits) for bits in distinct(levers) if bits != own_levers and not int(bits) & ~own_levers]
    place = {bits: int(np.argmax(levers == bits)) for bits in present}
    path, left = [], own_levers
    while below := [bits for bits in present if bits != left and not bits & ~left]:
        most_levers = max(bits.bit_count() for bits in below)
        left = min((bits for bits in below if bits.bit_count() == most_levers), key=place.__getitem__)
        path.append(left)
    yield from path
    yield from sorted((bits for bits in present if bits not in path), key=place.__getitem__)


def _levers(table: Scores) -> Ints:
    """Levers of each row, a bit each."""
    alone = table.second < 0
    mixed, prefill, decode = (_bits(phases) for phases in (table.mixed, table.prefill, table.decode))
    two = prefill[np.where(alone, 0, table.first)] | decode[np.maximum(table.second, 0)] | APART
    return np.where(alone, mixed[np.where(alone, table.first, 0)], two)


def attention_apart(table: Scores) -> NDArray[np.bool_]:
    """Rows whose decodes have attention on devices of their own."""
    return _levers(table) & ATTENTION > 0


def _bits(phases: Sequence[Phase]) -> Ints:
    bits = [
        (pool.speculation is not None)
        | (pool.data > 1) << 1
        | (pool.pipeline > 1) << 2
        | ATTENTION * (phase.shape.attention is not None)
        for phase in phases
        for pool in [phase.shape.pool]
    ]
    return np.array(bits or [0], np.int64)


def _of_one_pool(table: Scores, rows: Ints, figure: Callable[[ReplicaShape], int]) -> Ints:
    """A figure of the replicas of rows of one pool."""
    by_shape = np.array([figure(phase.shape) for phase in table.mixed], np.int64)
    return by_shape[table.first[rows]]


def _simplest(table: Scores, rows: Ints) -> int:
    """The best row; of those not told apart from it, the first whose experts are not sharded."""
    best = table.value[rows[0]]
    close = rows[np.abs(table.value[rows] / best - 1.0) < STEADY_ERROR] if best else rows[:1]
    alone = table.second[close] < 0
    mixed, prefill, decode = (
        np.array([phase.shape.pool.expert for phase in phases] or [1])
        for phases in (table.mixed, table.prefill, table.decode)
    )
    two = np.maximum(prefill[np.where(alone, 0, table.first[close])], decode[table.second[close]])
    ranks = np.where(alone, mixed[np.where(alone, table.first[close], 0)], two)
    return int(close[int(np.argmax(ranks == 1))])
