"""A degree for each document by its length: short ones on one rank, long ones over as many as they need."""

from __future__ import annotations

import numpy as np

from simulator.packing.assignment import Dealt
from simulator.packing.base import Array
from simulator.packing.costs import DegreeCosts


def dealt_by_length(lengths: Array, costs: DegreeCosts, ranks: int) -> Dealt:
    """A step's documents on ranks that meet only where they share a document.

    Hybrid data parallelism (Ge et al. 2025, ByteScale, arXiv 2502.21231): a document takes the fewest
    ranks that hold it. Longest document first, each starts on the ranks that are free first. Micro batches
    of a rank hold documents up to its room: the fixed seconds of a document count by its share of one.

    Args:
        lengths: of all documents of a step, shape (documents,).
        costs: of the degrees.
        ranks: ranks that share the step.
    """
    lengths = np.sort(lengths)[::-1]
    full = costs.room * costs.degrees
    degree = np.minimum(np.searchsorted(full + 1e-6, lengths), len(full) - 1)
    share = costs.fixed[degree] * np.minimum(lengths / full[degree], 1.0)
    seconds = share + costs.token[degree] * lengths + costs.square[degree] * lengths**2
    free = np.zeros(ranks)
    for count, time in zip(costs.degrees[degree].astype(np.int64).tolist(), seconds.tolist(), strict=True):
        if count == 1:
            free[free.argmin()] += time
            continue
        shared = np.argpartition(free, count - 1)[:count] if count < ranks else np.arange(ranks)
        free[shared] = free[shared].max() + time
    used = np.arange(len(costs.degrees))
    tokens, squares = (
        np.bincount(degree, weights, minlength=len(used)).astype(np.float64)
        for weights in (lengths, lengths**2)
    )
    even = float(max(seconds.max(), (seconds * costs.degrees[degree]).sum() / ranks))
    bound = min(even, float(free.max()))
    return Dealt(used, tokens, squares, float(free.max()), bound)
