"""Documents dealt to groups of ranks: tokens of each group, seconds of the slowest, a bound on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.records import record
from simulator.packing.base import Array
from simulator.packing.costs import DegreeCosts


@record()
class Dealt:
    """A micro batch dealt to groups.

    Attributes:
        degree: index of each group's degree, shape (groups,).
        tokens, squares: of each group, shape (groups,).
        seconds: of the slowest group.
        bound: no assignment of these documents takes less, s.
        waiting: tokens of documents that no group has room for.
    """

    degree: NDArray[np.int64]
    tokens: Array
    squares: Array
    seconds: float
    bound: float
    waiting: float = 0.0

    @property
    def gap(self) -> float:
        """How far the bound lies below the value, as a share."""
        return max(1.0 - self.bound / self.seconds, 0.0) if self.seconds else 0.0

    def ends(self, costs: DegreeCosts) -> Array:
        """Seconds of each group, shape (groups,); of groups without documents none."""
        of = self.degree
        seconds = costs.fixed[of] + costs.token[of] * self.tokens + costs.square[of] * self.squares
        return np.where(self.tokens > 0, seconds, 0.0)


def dealt_to(lengths: Array, degree: NDArray[np.int64], costs: DegreeCosts) -> Dealt:
    """Longest document first, each to the group that then ends first among those with room.

    Args:
        lengths: of documents, descending, shape (documents,).
        degree: index of each group's degree, shape (groups,).
        costs: of the degrees.
    """
    room = costs.room * costs.degrees[degree]
    token, square = costs.token[degree], costs.square[degree]
    tokens, squares, ends = np.zeros(len(degree)), np.zeros(len(degree)), costs.fixed[degree].copy()
    waiting = 0.0
    for length in lengths.tolist():
        after = np.where(tokens + length <= room + 1e-6, ends + token * length + square * length**2, np.inf)
        group = int(after.argmin())
        if after[group] == np.inf:
            waiting += length
            continue
        ends[group] = after[group]
        tokens[group] += length
        squares[group] += length**2
    busy = ends[tokens > 0]
    return Dealt(degree, tokens, squares, float(busy.max()) if len(busy) else 0.0, 0.0, waiting)


def least(lengths: Array, costs: DegreeCosts, ranks: int) -> float:
    """A bound on the slowest group: the longest document's best group, and all work spread evenly, s."""
    able = lengths[:, np.newaxis] <= costs.room * costs.degrees + 1e-6
    added = costs.token * lengths[:, np.newaxis] + costs.square * lengths[:, np.newaxis] ** 2
    alone = np.where(able, costs.fixed + added, np.inf).min(axis=1)
    work = np.where(able, added * costs.degrees, np.inf).min(axis=1)
    return float(max(alone.max(), work.sum() / ranks))
