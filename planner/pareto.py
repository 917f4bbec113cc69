"""Pareto fronts: points that no other point beats in both figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Axis:
    """One figure of every point.

    Attributes:
        name: for people, with its unit.
        key: in JSON.
        values: shape (points,); infinite where a point has none.
        higher: whether more is better.
        target: value that plans are asked to keep to; None without one.
    """

    name: str
    key: str
    values: Array
    higher: bool = False
    target: float | None = None

    def keeps(self, point: int) -> bool:
        """Whether a plan keeps to the target; all do where there is none."""
        value = float(self.values[point])
        return self.target is None or (value >= self.target if self.higher else value <= self.target)

    @property
    def costs(self) -> Array:
        """The values with less being better."""
        return -self.values if self.higher else self.values


@dataclass(frozen=True, eq=False)
class Front:
    """Two figures of the same points."""

    x: Axis
    y: Axis

    @cached_property
    def points(self) -> NDArray[np.int64]:
        """Indices of the points on the front, sorted by ``x``, best first; of equal points, the first."""
        return front(self.x.costs, self.y.costs)


@dataclass(frozen=True, eq=False, repr=False)
class Fronts:
    """Fronts over the plans of one search.

    Attributes:
        subject: what the plans are for.
        fronts: pairs of figures.
        name: one line about a point.
        scenario: a point as a mapping that ``simulate`` reads.
        band: half-width of the band of a point's times, as a share; None where no error is known.
    """

    subject: str
    fronts: Sequence[Front]
    name: Callable[[int], str]
    scenario: Callable[[int], dict[str, object]]
    band: Callable[[int], float | None] = lambda _: None

    def __repr__(self) -> str:
        """The subject, and the plans on each front."""
        lines = [
            f"{front.y.name} against {front.x.name}: {len(front.points)} on the front"
            for front in self.fronts
        ]
        return "\n".join([f"Fronts of {self.subject} over {len(self):,} plans", *lines])

    def __len__(self) -> int:
        return len(self.fronts[0].x.values)


def front(first: Array, second: Array) -> NDArray[np.int64]:
    """Indices of the points that no other beats in both costs, in order of the first.

    Args:
        first, second: costs, shape (points,); points with an infinite one are left out.
    """
    order = np.lexsort((second, first))
    order = order[np.isfinite(first[order]) & np.isfinite(second[order])]
    if not len(order):
        return order.astype(np.int64)
    least = np.minimum.accumulate(second[order])
    better = np.concatenate([[True], second[order][1:] < least[:-1]])
    return order[better].astype(np.int64)
