"""Structures in the order of a bound of their step, until no bound is left below the bar.

A bound holds for all ways to shard the state of a shape, so that shapes beyond the bar are left before their
sharding branches and their memory is computed (``planner.training.bounds``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from planner.training.bounds import ShapeBounds
from planner.training.candidates import Enumeration, chunks
from planner.training.levers import Bar, Chooser
from planner.training.rules import STATE
from planner.training.structures import recomputing
from simulator.plan import Choice, Plans

SLOWER = "slower"
"""Reason of candidates whose bound exceeds the step of every plan that would be shown or weighed."""
LATER = (*STATE, "policy")
"""Fields that branch last and that the bound does not depend on."""
NEAR = 1 << 14
"""Shapes of the least busiest stages, among which the first round is chosen."""
FIRST = 1 << 12
"""Shapes of the first round. Fewer are not bounded."""
KINDS = 8
"""The first round has a share of one over it more of each kind of recomputation."""
ROUND = 1 << 13
"""Shapes of each later round."""
ROUNDING = 1e-6
"""Relative difference of times that rank as equal, at most."""


def nearest_first(
    enumeration: Enumeration, chooser: Chooser, bar: Bar, families: bool = False
) -> Iterator[Plans]:
    """Yield chunks of structures, those with the lowest bounds first; those above the bar count as slower.

    The first are of the fastest shapes that may fit without sharded gradients and parameters: they lower the
    bar most. Among them are those of each kind of recomputation, which may be a family.

    Args:
        enumeration: of the structures.
        chooser: of their levers.
        bar: the slowest step of interest so far.
        families: whether the best plan of each family is of interest.
    """
    shapes, depth = enumeration.before(*LATER)
    if shapes.count <= FIRST:
        yield from chunks(enumeration.branched(shapes, depth) if shapes.count else iter(()))
        return
    bounds, zeros = (
        ShapeBounds.of(chooser.space, chooser.usable_bytes, shapes.plans),
        enumeration.space.codes("zero"),
    )
    chooser.prices = bounds.prices
    order = np.argsort(bounds.busiest, kind="stable")
    closest = order[:NEAR]
    usual = bounds.passes(closest, zero=1)
    first = closest[np.argsort(np.minimum.reduce([*usual.values()]), kind="stable")[:FIRST]]
    for seconds in usual.values() if families else ():
        fastest = np.argsort(seconds, kind="stable")[: FIRST // KINDS]
        first = np.concatenate([first, closest[fastest[np.isfinite(seconds[fastest])]]])
    nearby = np.zeros(shapes.count, dtype=bool)
    nearby[first] = True
    first, rest = np.flatnonzero(nearby), np.flatnonzero(~nearby)
    yield from chunks(enumeration.branched(shapes.take(first), depth))
    busiest = dict.fromkeys(bounds.space.recompute, bounds.busiest[rest])
    rest = rest[_below(bounds.plans.take(rest), busiest, bar, zeros)]
    closer = bounds.passes(rest)
    least = np.minimum.reduce([*closer.values()])
    waiting, tried = np.argsort(least, kind="stable"), 0
    while True:
        passes = {kind: seconds[waiting] for kind, seconds in closer.items()}
        waiting = waiting[_below(bounds.plans.take(rest[waiting]), passes, bar, zeros)]
        if not len(waiting):
            break
        nearer, waiting = np.sort(waiting[:ROUND]), waiting[ROUND:]
        tried += len(nearer)
        yield from chunks(enumeration.branched(shapes.take(rest[nearer]), depth))
    slower = shapes.count - len(first) - tried - int(np.isinf(least).sum())
    enumeration.removed[SLOWER] += slower * enumeration.candidates_of(depth)


def _below(shapes: Plans, bound: Mapping[str, np.ndarray], bar: Bar, zeros: np.ndarray) -> np.ndarray:
    """Whether a bound by kind of recomputation is below the bar with some kind of sharding."""
    below = np.zeros(len(shapes), dtype=bool)
    for kind, seconds in bound.items():
        plans = recomputing(shapes, Choice["recompute"].index(kind))
        for zero in zeros.tolist():
            slowest = bar(replace(plans, zero=np.full(len(plans), zero)))
            below |= np.isfinite(seconds) & (seconds <= slowest * (1 + ROUNDING))
    return below
