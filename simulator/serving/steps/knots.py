"""Knots of step times: where a function with steps must be priced so that it is linear between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct

Array = NDArray[np.float64]

KNOTS_AN_OCTAVE = 8
TILE = 64
"""Tokens after which the time of products and of attention steps."""
MIDDLE_TOLERANCE = 0.003
"""Error in the middle of an interval, as a share, from which it holds a step."""


def geometric(first: int, last: int) -> Array:
    """Whole numbers from ``first`` to ``last``, ``KNOTS_AN_OCTAVE`` per octave."""
    octaves = np.log2(max(last / first, 1.0))
    steps = np.arange(int(np.ceil(octaves * KNOTS_AN_OCTAVE)) + 1)
    return distinct(np.minimum(np.round(first * 2.0 ** (steps / KNOTS_AN_OCTAVE)), last))


def tile_knots(last: int) -> Array:
    """Few tokens, and from 64 on the last row of each tile and the first of the next."""
    tiles = np.arange(TILE, last + TILE, TILE)
    knots = distinct(np.concatenate([geometric(1, TILE), tiles, tiles + 1]))
    return np.append(knots[knots < last], last).astype(np.float64)


def stepped(function: Callable[[Array], Array], knots: Array) -> tuple[Array, Array]:
    """Knots and values of a function with steps, such that it is linear between them.

    Where the middle of an interval is off the line by more than ``MIDDLE_TOLERANCE``, a step lies in the
    interval and every number of it becomes a knot.

    Args:
        function: of an array of shape (n,), returns (n, ...).
        knots: ascending whole numbers.
    """
    values = function(knots)
    wide = np.flatnonzero(np.diff(knots) > 1)
    if not len(wide):
        return knots, values
    middles = np.floor(0.5 * (knots[wide] + knots[wide + 1]))
    share = (middles - knots[wide]) / (knots[wide + 1] - knots[wide])
    share = share.reshape(-1, *[1] * (values.ndim - 1))
    line = (1 - share) * values[wide] + share * values[wide + 1]
    exact = function(middles)
    off = np.abs(line - exact) > MIDDLE_TOLERANCE * exact
    off = off.reshape(len(wide), -1).any(axis=1)
    inside = [np.arange(float(knots[i]) + 1, float(knots[i + 1])) for i in wide[off]]
    more = np.concatenate([middles, *inside])
    values = np.concatenate([values, exact, function(more[len(middles) :])])
    knots, order = np.unique(np.append(knots, more), return_index=True)
    return knots, values[order]


def at_every(function: Callable[[Array], Array], last: int) -> Array:
    """Values of a function with steps at 0 (as 0) to ``last``."""
    knots = distinct(np.concatenate([np.arange(1.0, min(last, 512) + 1), tile_knots(last)]))
    values = np.interp(np.arange(last + 1), *stepped(function, knots))
    values[0] = 0.0
    return values
