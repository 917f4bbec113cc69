"""Groups of unequal degree, chosen for each micro batch by a mixed-integer program (FlexSP)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.solver import highs, solver_library
from simulator.packing.assignment import Dealt, dealt_to, least
from simulator.packing.base import Array
from simulator.packing.costs import DegreeCosts

QUESTION = "packing: flexsp"
GAP = 0.01
"""Gap between a bound and a group pattern at which the search for a shorter micro batch ends."""
MOST_ROUNDS = 10
TIME_LIMIT_S = 2.0
BUCKETS = 48
"""Most lengths that the program tells apart; documents of a bucket count as its shortest in the bound."""
MOST_EDGES = 512
"""Most lengths among which the edges of buckets are chosen."""


def dealt_by_program(lengths: Array, costs: DegreeCosts, ranks: int) -> Dealt:
    """The groups of one micro batch, and the documents of each.

    FlexSP (Wang et al. 2025, arXiv 2412.01523) minimises the slowest group over groups of every degree.
    Here the groups of one degree are one pool: for a time T, the program asks for the fewest ranks whose
    pools carry all documents in T. Halving the interval of T gives a bound; then documents are dealt one
    by one.

    Args:
        lengths: of documents, shape (documents,).
        costs: of the degrees.
        ranks: ranks to form groups of.

    Raises:
        InputError: PuLP or HiGHS is not installed.
    """
    lengths = np.sort(lengths)[::-1]
    best = min(
        (dealt_to(lengths, pattern, costs) for pattern in _uniform(lengths, costs, ranks)),
        key=lambda dealt: (dealt.waiting, dealt.seconds),
    )
    low, high = least(lengths, costs, ranks), best.seconds
    if len(costs.degrees) > 1:
        shortest, counts = buckets(lengths)
        for _ in range(MOST_ROUNDS):
            if high - low <= GAP * high:
                break
            middle = 0.5 * (low + high)
            try:
                groups = _groups(shortest, counts, costs, ranks, middle)
            except TimeoutError:
                break
            if groups is None:
                low = middle
                continue
            high = middle
            dealt = dealt_to(lengths, _filled(groups, costs, ranks), costs)
            if (dealt.waiting, dealt.seconds) < (best.waiting, best.seconds):
                best = dealt
    return Dealt(best.degree, best.tokens, best.squares, best.seconds, min(low, best.seconds), best.waiting)


def _uniform(lengths: Array, costs: DegreeCosts, ranks: int) -> list[NDArray[np.int64]]:
    """Groups of one degree each, of every degree that has room for the longest document."""
    able = np.flatnonzero(costs.room * costs.degrees + 1e-6 >= lengths[0])
    return [np.full(int(ranks // costs.degrees[at]), at) for at in able if costs.degrees[at] <= ranks]


def _filled(groups: NDArray[np.int64], costs: DegreeCosts, ranks: int) -> NDArray[np.int64]:
    """The degree of each group, the largest first; ranks that no group needs form the largest that fit."""
    degrees, groups = costs.degrees.astype(np.int64), groups.copy()
    spare = ranks - int(groups @ degrees)
    for at in range(len(degrees) - 1, -1, -1):
        added, spare = divmod(spare, int(degrees[at]))
        groups[at] += added
    return np.repeat(np.arange(len(degrees)), groups)[::-1]


def _groups(
    lengths: Array, counts: Array, costs: DegreeCosts, ranks: int, seconds: float
) -> NDArray[np.int64] | None:
    """Groups of each degree that carry all documents within a time; None where no groups do.

    Documents may be split between pools, so that no groups at all proves that none carry the documents whole.

    Raises:
        TimeoutError: the solver proved neither.
    """
    pulp = solver_library(QUESTION)
    problem: Any = pulp.LpProblem("groups", pulp.LpMinimize)
    added = costs.token * lengths[:, np.newaxis] + costs.square * lengths[:, np.newaxis] ** 2
    able = (lengths[:, np.newaxis] <= costs.room * costs.degrees + 1e-6) & (costs.fixed + added <= seconds)
    if not able.any(axis=1).all():
        return None
    pools = range(len(costs.degrees))
    groups = [
        problem.add_variable(f"k_{at}", 0, int(ranks // costs.degrees[at]), pulp.LpInteger) for at in pools
    ]
    sent = {
        (bucket, at): problem.add_variable(f"x_{bucket}_{at}", 0, float(counts[bucket]))
        for bucket, at in np.argwhere(able).tolist()
    }
    problem += pulp.lpSum(float(costs.degrees[at]) * groups[at] for at in pools)
    for bucket, count in enumerate(counts.tolist()):
        problem += pulp.lpSum(sent[bucket, at] for at in pools if (bucket, at) in sent) == count
    for at in pools:
        mine = [bucket for bucket in range(len(lengths)) if (bucket, at) in sent]
        if not mine:
            continue
        # Shares of what one group carries in the time, and of what it has room for.
        time = max(seconds - float(costs.fixed[at]), 1e-12)
        problem += (
            pulp.lpSum(float(added[bucket, at]) / time * sent[bucket, at] for bucket in mine) <= groups[at]
        )
        room = costs.room * float(costs.degrees[at])
        problem += (
            pulp.lpSum(float(lengths[bucket]) / room * sent[bucket, at] for bucket in mine) <= groups[at]
        )
    problem.solve(highs(QUESTION, TIME_LIMIT_S, 1e-6))
    if problem.sol_status == pulp.LpSolutionInfeasible:
        return None
    if problem.sol_status != pulp.LpSolutionOptimal:
        raise TimeoutError
    numbers = np.array([round(count.value() or 0.0) for count in groups], np.int64)
    return numbers if numbers @ costs.degrees <= ranks + 1e-6 else None


def buckets(lengths: Array) -> tuple[Array, Array]:
    """The shortest document of each bucket, and its documents; edges lose the fewest tokens.

    A dynamic program over the distinct lengths, of which the most are first merged with their shorter
    neighbours (FlexSP, section 4.1.3, chooses edges by the same loss).

    Args:
        lengths: of documents, descending.
    """
    values, counts = np.unique(lengths, return_counts=True)
    if len(values) > MOST_EDGES:
        starts = np.unique(np.linspace(0, len(values) - 1, MOST_EDGES).astype(np.int64))
        values, counts = values[starts], np.add.reduceat(counts, starts)
    size = len(values)
    if size <= BUCKETS:
        return values, counts.astype(np.float64)
    number = np.concatenate([[0], np.cumsum(counts)])
    weight = np.concatenate([[0.0], np.cumsum(counts * values)])
    # loss[i, j]: tokens lost where documents i to j - 1 count as the i-th length.
    loss = weight[np.newaxis, :] - weight[:, np.newaxis]
    loss = loss - np.append(values, 0.0)[:, np.newaxis] * (number[np.newaxis, :] - number[:, np.newaxis])
    loss[np.tril_indices(size + 1)] = np.inf
    total, origins = loss[0].copy(), []
    for _ in range(BUCKETS - 1):
        sums = total[:, np.newaxis] + loss
        origins.append(sums.argmin(axis=0))
        total = sums.min(axis=0)
    edges = [size]
    for origin in reversed(origins):
        edges.append(int(origin[edges[-1]]))
    starts = np.array([0, *edges[:0:-1]])
    return values[starts], np.add.reduceat(counts, starts).astype(np.float64)
