"""Lengths with a long tail, as of chat logs."""

from __future__ import annotations

from math import exp, log
from typing import Literal

import numpy as np
from pydantic import Field

from hwmodels.quantities import Tokens
from simulator.serving.workload.lengths.base import Lengths, whole


class Lognormal(Lengths):
    """Lengths whose logarithm is normal, cut at ``most``."""

    kind: Literal["lognormal"] = "lognormal"
    median: float = Field(ge=0.1, le=2**27, description="half of the lengths are below it, tokens")
    sigma: float = Field(ge=0, le=10, description="standard deviation of the logarithm")
    most: Tokens = Field(1 << 20, description="longer draws are cut to it, tokens")

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """See `Lengths.draw`."""
        drawn = np.exp(random.normal(log(self.median), self.sigma, count))
        return np.minimum(whole(drawn), self.most)

    def mean(self) -> float:
        """Mean before the cut."""
        return min(self.median * exp(0.5 * self.sigma**2), float(self.most))
