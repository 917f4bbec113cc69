"""Step times of decode batches whose size varies about its mean.

Under random arrivals the sequences that decode together vary from step to step. Step times are a stair:
batches are padded to captured sizes, and products of some sizes are faster than those of smaller ones. So
the mean step is not the step of the mean batch.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct

Array = NDArray[np.float64]

POINTS = 16
"""Batches of equal chance that stand for the distribution of the batch at one mean."""


SHARED = 1, 2, 4, 8
"""Batches among which arrivals are balanced, for which averages are made; the largest stands for more."""

EVERY, STRIDE = 128, 4
"""Mean batch up to which each has its average, and distance of the larger ones that have."""


def averaged(seconds: Array, last: int, shared: int) -> Array:
    """Mean step times by the mean batch.

    Args:
        seconds: step times of batches of 0, 1, 2, ... sequences, shape (n,).
        last: largest batch; the times of larger numbers are left as they are.
        shared: batches among which arrivals are balanced.

    Returns:
        Mean times of steps whose mean batch is 0, 1, 2, ... sequences, shape (n,).
    """
    count = min(last, len(seconds) - 1)
    means, batches = _batches(count, shared)
    batches = np.minimum(batches, len(seconds) - 1.0)
    low = np.minimum(batches.astype(np.int64), len(seconds) - 2)
    share = batches - low
    mean = np.array(seconds, dtype=np.float64)
    averages = (seconds[low] * (1.0 - share) + seconds[low + 1] * share).mean(axis=0)
    mean[1 : count + 1] = np.interp(np.arange(1.0, count + 1), means, averages)
    return mean


@cache
def _batches(count: int, shared: int) -> tuple[Array, Array]:
    """Means up to ``count``, shape (n,), and batches that a sequence decodes in, shape (POINTS, n).

    Arrivals are independent, so the number of companions over all ``shared`` batches is as a Poisson number:
    here a gamma distribution of the same mean and variance, by the cube-root transform of Wilson and Hilferty
    (1931).
    """
    means = distinct(
        np.append(np.minimum(np.arange(1, EVERY + 1), count), np.arange(EVERY, count + 1, STRIDE))
    )
    means = np.append(means[means < count], count).astype(np.float64)
    companions = np.maximum((means - 1.0) * shared, 1e-9)
    chances = (np.arange(POINTS) + 0.5) / POINTS
    normal = np.array([NormalDist().inv_cdf(chance) for chance in chances])[:, None]
    root = 1.0 - 1.0 / (9.0 * companions) + normal / (3.0 * np.sqrt(companions))
    numbers = companions * np.maximum(root, 0.0) ** 3
    return means, 1.0 + numbers * (companions / np.maximum(numbers.mean(axis=0), 1e-12)) / shared
