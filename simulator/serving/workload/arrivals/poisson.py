"""Independent arrivals at a constant rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Rate
from simulator.serving.workload.arrivals.base import BLOCK, Arrivals, summed


class Poisson(Arrivals):
    """Exponential gaps."""

    kind: Literal["poisson"] = "poisson"
    rate: Rate = Field(description="arrivals a second")

    def times(self, random: np.random.Generator) -> Iterator[float]:
        """See `Arrivals.times`."""
        return summed(random.exponential(1 / self.rate, BLOCK) for _ in iter(int, 1))

    def mean_rate(self) -> float:
        """The rate."""
        return self.rate
