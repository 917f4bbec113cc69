"""Times of collectives: one algorithm a file, found through one registry.

A library picks the algorithm and protocol that it expects to be fastest, and so does ``seconds``. Near the
crossover of two protocols the choice is not always the fastest, hence a smooth minimum.

An algorithm's ``seconds`` rest on calibrated constants; ``latency`` adds the difference between this
cluster's hop latency and the calibrated one, shape (calls,).
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from hwmodels.collectives import direct, in_switch, pairwise, ring, tree
from hwmodels.collectives.call import CollectiveCalls, Floats

ALGORITHMS: tuple[ModuleType, ...] = (ring, tree, in_switch, pairwise, direct)


def seconds(call: CollectiveCalls) -> Floats:
    """Return the time of each call by its best algorithm, s; 0 for a group of one."""
    candidates = [(a, a.seconds(call)) for a in ALGORITHMS if call.operation in a.OPERATIONS]
    best = [smooth_minimum(times) + a.latency(call) for a, times in candidates if len(times)]
    return np.where(call.size > 1, np.minimum.reduce(best), 0.0)


def smooth_minimum(times: Floats) -> Floats:
    """Return ``sum(t ** -8) ** (-1 / 8)`` along the first axis; 8 because squares and roots are fast."""
    rate = np.square(1 / times)
    np.square(rate, out=rate)
    np.square(rate, out=rate)
    with np.errstate(divide="ignore"):  # without a finite candidate, the time is infinite
        return 1 / np.sqrt(np.sqrt(np.sqrt(rate.sum(axis=0))))
