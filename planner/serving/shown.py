"""Deployments to show: the best, and launches that differ from it in what they need of an engine.

The rows behind the best one are mostly the same launch with another draft length or degree. A reader chooses
between launches: the plainest, the smallest replica, the most measured one, and what each lever of the best
one brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.serving.phases import Phase
from planner.serving.scores import Scores
from planner.serving.shapes import ReplicaShape

Ints = NDArray[np.int64]
Proof = Callable[[ReplicaShape], int]
"""Measured servers of a replica's layout; 0 for none."""

LEVERS = ("speculation", "data-parallel attention", "pipeline stages", "disaggregation")
"""What a launch may do without, by bit. Sharded experts need no more than a flag, on the same ranks."""
APART = 1 << LEVERS.index("disaggregation")
STEADY_ERROR = 0.023
"""Median error of the steady state's largest rate against the event engine, over thirty questions
(``python -m benchmarks.serving_refined``). Rows closer than that are not told apart."""
FIRST, PLAIN, SMALL, PROVEN, NEXT = (
    "first choice",
    "plainest",
    "smallest replica",
    "most measured servers",
    "next in the ranking",
)


def chosen_rows(
    table: Scores, order: Ints, top: int, proof: Proof | None = None
) -> tuple[list[int], list[str]]:
    """Rows to show, the best first, and why each is shown.

    After the best row: the best without any lever, the smallest replica without any, the layout with most
    measured servers, the best rows as the levers of the first go one by one, and the ranking.

    Args:
        table: all rows.
        order: rows that meet the targets, the best first.
        top: rows to return.
        proof: counts measured servers of a layout.
    """
    by_layout: dict[tuple[int, ...], tuple[int, str]] = {}
    for row, why in _wanted(table, order, proof):
        if len(by_layout) == top:
            break
        by_layout.setdefault(table.layout(row), (row, why))
    place = np.empty(len(table), np.int64)
    place[order] = np.arange(len(order))
    rows = sorted(by_layout.values(), key=lambda shown: int(place[shown[0]]))
    return [row for row, _ in rows], [why for _, why in rows]


def _wanted(table: Scores, order: Ints, proof: Proof | None) -> Iterator[tuple[int, str]]:
    """Rows in the order in which they are wanted; layouts may repeat."""
    yield int(order[0]), FIRST
    levers = _levers(table)[order]
    plain = order[levers == 0]
    if len(plain):
        yield _simplest(table, plain), PLAIN
        sizes = _of_one_pool(table, plain, lambda shape: shape.devices)
        yield int(plain[np.argmin(sizes)]), SMALL
    together = order[table.second[order] < 0]
    if proof is not None and len(together):
        counts = _of_one_pool(table, together, proof)
        if counts.max() > 0:
            yield int(together[np.argmax(counts)]), PROVEN
    own = int(levers[0])
    for left in _paths(table, order, levers, own):
        words = " and ".join(name for bit, name in enumerate(LEVERS) if (own & ~left) >> bit & 1)
        yield _simplest(table, order[levers == left]), f"without {words}"
    for row in order:
        yield int(row), NEXT


def _paths(table: Scores, order: Ints, levers: Ints, own: int) -> Iterator[int]:
    """Sets of levers below ``own``: what levers leave, one gone after another; then the rest."""
    present = [int(bits) for bits in np.unique(levers) if bits != own and not int(bits) & ~own]
    place = {bits: int(np.argmax(levers == bits)) for bits in present}
    path, left = [], own
    while below := [bits for bits in present if bits != left and not bits & ~left]:
        most = max(bits.bit_count() for bits in below)
        left = min((bits for bits in below if bits.bit_count() == most), key=place.__getitem__)
        path.append(left)
    yield from path
    yield from sorted((bits for bits in present if bits not in path), key=place.__getitem__)


def _levers(table: Scores) -> Ints:
    """Levers of each row, a bit each."""
    alone = table.second < 0
    mixed, prefill, decode = (_bits(phases) for phases in (table.mixed, table.prefill, table.decode))
    two = prefill[np.where(alone, 0, table.first)] | decode[np.maximum(table.second, 0)] | APART
    return np.where(alone, mixed[np.where(alone, table.first, 0)], two)


def _bits(phases: Sequence[Phase]) -> Ints:
    pools = [phase.shape.pool for phase in phases]
    bits = [
        (pool.speculation is not None) | (pool.data > 1) << 1 | (pool.pipeline > 1) << 2 for pool in pools
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
