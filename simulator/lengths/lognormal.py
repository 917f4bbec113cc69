"""Lengths with a long tail, as of chat logs."""

from __future__ import annotations

from math import erf, exp, log, sqrt
from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Tokens
from simulator.lengths.base import Lengths, rounded

HALVINGS = 50
ROOM = 8.0
"""Deviations of the median above the longest length at which the search for it begins."""


class Lognormal(Lengths):
    """Lengths whose logarithm is normal, cut at ``most``."""

    kind: Literal["lognormal"] = "lognormal"
    median: float = Field(ge=0.1, le=2**27, description="half of the lengths are below it, tokens")
    sigma: float = Field(ge=0, le=10, description="standard deviation of the logarithm")
    most: Tokens = Field(1 << 20, description="longer draws are cut to it, tokens")

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """See `Lengths.draw`."""
        drawn = np.exp(random.normal(log(self.median), self.sigma, count))
        return np.minimum(rounded(drawn), self.most)

    def mean(self) -> float:
        """Mean of the lengths, longer ones cut."""
        if not self.sigma:
            return min(self.median, float(self.most))
        above = log(self.most / self.median) / self.sigma
        whole_mean = self.median * exp(0.5 * self.sigma**2)
        return whole_mean * _below(above - self.sigma) + self.most * (1.0 - _below(above))

    def longest(self) -> int:
        """The length that longer draws are cut to."""
        return self.most


def median_of_mean(mean: float, sigma: float, limit: int) -> float:
    """Median of lengths whose mean, longer ones cut to ``limit``, is ``mean``.

    Args:
        mean: tokens, below ``limit``.
        sigma: standard deviation of the logarithm.
        limit: longest length.
    """
    low, high = log(mean) - 0.5 * sigma**2, log(limit) + ROOM * sigma
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = Lognormal(median=exp(middle), sigma=sigma, most=limit).mean() < mean
        low, high = (middle, high) if below else (low, middle)
    return exp(0.5 * (low + high))


def _below(deviations: float) -> float:
    """Share of a standard normal distribution below a number of deviations."""
    return 0.5 * (1.0 + erf(deviations / sqrt(2.0)))
