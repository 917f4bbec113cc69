"""Bytes that scattered reads of rows bring from memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def distinct_rows(reads: ArrayLike, rows: ArrayLike) -> Array:
    """Distinct rows among ``reads`` even draws from ``rows``, in the mean: rows (1 - exp(-reads / rows))."""
    drawn, stored = np.asarray(reads, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    return -stored * np.expm1(-drawn / stored)


def gathered_bytes(reads: ArrayLike, distinct: ArrayLike, row_bytes: ArrayLike, cache_bytes: float) -> Array:
    """Bytes from memory of ``reads`` rows, of which ``distinct`` differ; arguments broadcast.

    A row comes from memory once; a further read of it finds it in the cache with the chance that a row of
    those in turn lies there: the cache's bytes over those of all distinct rows, at most 1.
    """
    every, once = np.asarray(reads, dtype=np.float64), np.asarray(distinct, dtype=np.float64)
    size = np.asarray(row_bytes, dtype=np.float64)
    total = float(np.sum(once * size))
    cached = min(cache_bytes / total, 1.0) if total > 0 else 1.0
    return size * (once + (every - once) * (1.0 - cached))
