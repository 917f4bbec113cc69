"""Arrivals at a constant interval."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Rate
from simulator.serving.workload.arrivals.base import Arrivals


class UniformArrivals(Arrivals):
    """Equal gaps."""

    kind: Literal["uniform"] = "uniform"
    rate: Rate = Field(description="arrivals a second")

    def times(self, random: np.random.Generator) -> Iterator[float]:
        """See `Arrivals.times`."""
        return (number / self.rate for number in count())

    def mean_rate(self) -> float:
        """The rate."""
        return self.rate
