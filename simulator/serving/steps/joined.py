"""Functions given at knots, joined over tables: one call looks up cases of several tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T")


def knots_below(knots: Array) -> Ints:
    """The knot below each whole number up to the last one, but not the last knot itself."""
    below = np.searchsorted(knots, np.arange(int(knots[-1]) + 1), side="right") - 1
    return np.clip(below, 0, len(knots) - 2).astype(np.int64)


@dataclass(frozen=True)
class Grid:
    """A function of two variables, linear between knots, which are whole numbers."""

    x: Array
    y: Array
    z: Array
    """Shape (x, y)."""

    @cached_property
    def _alone(self) -> JoinedGrids:
        return JoinedGrids([self])

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        """Interpolate arrays that broadcast; clamped to the grid's edges along x, extended along y."""
        return self._alone.at(0)(x, y)


def _firsts(parts: Sequence[np.ndarray]) -> Ints:
    """Index of the first value of each part in the joined array."""
    return np.cumsum([0, *(part.size for part in parts[:-1])]).astype(np.int64)


def _distinct(parts: Sequence[T]) -> tuple[list[T], Ints]:
    """The objects among the parts, each once, and the number of each part's: replicas share many."""
    objects = {id(part): part for part in parts}
    numbers = {key: number for number, key in enumerate(objects)}
    return list(objects.values()), np.array([numbers[id(part)] for part in parts])


class JoinedVectors:
    """Functions of an integer, given at 0, 1, 2, ...; one function per table."""

    def __init__(self, parts: Sequence[Array]) -> None:
        distinct, number = _distinct(parts)
        self.values = np.concatenate(distinct)
        self.first, self.last = _firsts(distinct)[number], np.array([len(part) - 2 for part in parts])

    def at(self, which: Ints | int) -> Callable[[Array], Array]:
        """The function of the table of each case: linear between whole numbers; the last value holds on."""
        values, first, last = self.values, self.first[which], self.last[which]

        def look_up(x: Array) -> Array:
            low = np.minimum(x.astype(np.int64), last)
            share = np.minimum(x - low, 1.0)
            low = low + first
            return values[low] * (1.0 - share) + values[low + 1] * share

        return look_up


def _joined_below(axes: Sequence[Array]) -> tuple[Ints, Ints, Ints]:
    """Knots below whole numbers of distinct axes, joined; first and last index of each axis."""
    parts: dict[bytes, Ints] = {}
    for axis in axes:
        key = axis.tobytes()
        if key not in parts:
            parts[key] = knots_below(axis)
    numbers = {key: number for number, key in enumerate(parts)}
    index = np.array([numbers[axis.tobytes()] for axis in axes])
    below = list(parts.values())
    return np.concatenate(below), _firsts(below)[index], np.array([len(part) - 1 for part in below])[index]


class JoinedGrids:
    """Functions of two variables; one function per table."""

    def __init__(self, tables: Sequence[Grid]) -> None:
        grids, number = _distinct(tables)
        self.x, self.y = (np.concatenate([getattr(grid, axis) for grid in grids]) for axis in "xy")
        self.z = np.concatenate([grid.z.ravel() for grid in grids])
        self.first_x, self.first_y = (
            _firsts([getattr(grid, axis) for grid in grids])[number] for axis in "xy"
        )
        self.first_z, self.columns = (
            _firsts([grid.z for grid in grids])[number],
            np.array([len(grid.y) for grid in grids])[number],
        )
        self.below_x, self.first_below_x, self.last_x = _joined_below([grid.x for grid in tables])
        self.below_y, self.first_below_y, self.last_y = _joined_below([grid.y for grid in tables])

    def at(self, which: Ints | int) -> Callable[[ArrayLike, ArrayLike], Array]:
        """The function of the table of each case; see `Grid`."""
        first_x, first_y, first_z = self.first_x[which], self.first_y[which], self.first_z[which]
        below_x, below_y = self.first_below_x[which], self.first_below_y[which]
        last_x, last_y, columns = self.last_x[which], self.last_y[which], self.columns[which]
        knots_x, knots_y, flat = self.x, self.y, self.z

        # Steady states ask for the same y in every iteration: its places are kept.
        last_place: list[Any] = [None]

        def place(y: ArrayLike) -> tuple[Any, Any, Any]:
            if last_place[0] is not y:
                at = np.asarray(y, dtype=np.float64)
                j = self.below_y[below_y + np.minimum(at.astype(np.int64), last_y)]
                knot = j + first_y
                lower = knots_y[knot]
                last_place[:] = y, first_z + j, (at - lower) / (knots_y[knot + 1] - lower)
            return last_place[1], last_place[2], columns

        def look_up(x: ArrayLike, y: ArrayLike) -> Array:
            x = np.asarray(x, dtype=np.float64)
            corner, v, width = place(y)
            i = self.below_x[below_x + np.minimum(x.astype(np.int64), last_x)]
            corner = corner + i * width
            i = i + first_x
            left = knots_x[i]
            u = np.minimum(np.maximum((x - left) / (knots_x[i + 1] - left), 0.0), 1.0)
            low, high = flat[corner], flat[corner + width]
            low = low + v * (flat[corner + 1] - low)
            high = high + v * (flat[corner + width + 1] - high)
            return low + u * (high - low)

        return look_up
