"""Structures in the order of a bound of their step, until no bound is left below the bar.

A bound holds for all ways to shard the state of a shape, so that shapes beyond the bar are left before their
sharding branches and their memory is computed (``planner.training.bounds``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from planner.training.bounds import ShapeBounds
from planner.training.candidates import Enumeration, chunks
from planner.training.levers import Chooser
from planner.training.rules import STATE
from simulator.plan import Plans

SLOWER = "slower"
"""Reason of candidates whose bound exceeds the step of every plan that is weighed."""
LATER = (*STATE, "policy")
"""Fields that branch last and that the bound does not depend on."""
NEAR = 1 << 14
"""Shapes of the least busiest stages, among which the first round is chosen."""
FIRST = 1 << 11
"""Shapes of the first round. Fewer are not bounded."""
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
    tried = 0
    for rows in _rounds(ShapeBounds.of(chooser.space, chooser.usable_bytes, shapes.plans), bar):
        tried += len(rows)
        yield from chunks(enumeration.branched(shapes.take(rows), depth))
    enumeration.removed[SLOWER] += (shapes.count - tried) * enumeration.candidates_of(depth)


def _rounds(bounds: ShapeBounds, bar: Callable[[], float]) -> Iterator[np.ndarray]:
    """Yield the shapes whose bound is below the bar in two rounds, each in the order of the space.

    The first are the fastest that may fit without sharded gradients and parameters: they lower the bar most.
    """
    order = np.argsort(bounds.busiest, kind="stable")
    closest, later = order[:NEAR], order[NEAR:]
    usual = np.argsort(bounds.passes(closest, zero=1), kind="stable")
    yield np.sort(closest[usual[:FIRST]])
    rest = np.concatenate([closest[usual[FIRST:]], later])
    for bound in (bounds.busiest.__getitem__, bounds.passes):
        rest = np.sort(rest[bound(rest) <= bar() * (1 + ROUNDING)])
    if len(rest):
        yield rest
