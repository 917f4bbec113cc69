"""Bursty (or more even) arrivals: gamma-distributed gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Rate
from simulator.serving.workload.arrivals.base import BLOCK, Arrivals, summed


class Gamma(Arrivals):
    """Gaps with a coefficient of variation; 1 is Poisson.

    The ``--burstiness b`` of vLLM's benchmark client is ``cv = 1 / sqrt(b)``.
    """

    kind: Literal["gamma"] = "gamma"
    rate: Rate = Field(description="arrivals a second")
    cv: float = Field(ge=0.01, le=100, description="standard deviation of the gaps over their mean")

    def times(self, random: np.random.Generator) -> Iterator[float]:
        """See `Arrivals.times`."""
        shape = self.cv**-2
        return summed(random.gamma(shape, 1 / (shape * self.rate), BLOCK) for _ in iter(int, 1))

    def mean_rate(self) -> float:
        """The rate."""
        return self.rate
