"""Structures in the order of a bound of their step, until no bound is left below the bar.

The busiest stage bounds the steps of all ways to shard the state of a shape, so that shapes beyond the bar
are left before their sharding branches and their memory is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from planner.training.candidates import Enumeration, chunks
from planner.training.levers import Chooser
from planner.training.rules import STATE
from simulator.plan import Plans

SLOWER = "slower"
"""Reason of candidates whose bound exceeds the step of every plan that is weighed."""
LATER = (*STATE, "policy")
"""Fields that branch last and that the bound does not depend on."""
FIRST = 1 << 13
"""Shapes of the first round; each round has twice those of the one before. Fewer are not bounded."""
ROUNDING = 1e-6
"""Relative difference of times that rank as equal, at most."""


def nearest_first(enumeration: Enumeration, chooser: Chooser, bar: Callable[[], float]) -> Iterator[Plans]:
    """Yield chunks of structures, those with the lowest bounds first; those above the bar count as slower.

    Args:
        enumeration: of the structures.
        chooser: of their levers.
        bar: the slowest step of interest so far, s.
    """
    shapes, depth = enumeration.before(*LATER)
    if shapes.count <= FIRST:
        yield from chunks(enumeration.branched(shapes, depth) if shapes.count else iter(()))
        return
    bound = chooser.bound(shapes.plans)
    order, start, size, tried = np.argsort(bound, kind="stable"), 0, FIRST, 0
    while start < len(order):
        rows = order[start : start + size]
        rows = np.sort(rows[bound[rows] <= bar() * (1 + ROUNDING)])
        if not len(rows):
            break
        yield from chunks(enumeration.branched(shapes.take(rows), depth))
        start, size, tried = start + size, 2 * size, tried + len(rows)
    enumeration.removed[SLOWER] += (shapes.count - tried) * enumeration.candidates_of(depth)
