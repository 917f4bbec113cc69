"""A rate that changes over the day."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from simulator.serving.workload.arrivals.base import BLOCK, Arrivals

Rate = Annotated[float, Field(ge=0, le=1e6)]

LEAST = 1e-6
"""Highest rate of a cycle that has arrivals, 1/s."""


class Piecewise(Arrivals):
    """Poisson arrivals whose rate is constant for ``period`` seconds, then takes the next value, in a cycle.

    ``period: 3600`` with 24 rates is a day by the hour.
    """

    kind: Literal["piecewise"] = "piecewise"
    period: float = Field(ge=1e-3, le=1e7, description="seconds that each rate lasts")
    rates: list[Rate] = Field(min_length=1, description="arrivals a second, one after the other")

    @model_validator(mode="after")
    def _arrives(self) -> Piecewise:
        if max(self.rates) < LEAST:
            raise ValueError(f"rates: one of at least {LEAST:g} a second is needed")
        return self

    def times(self, random: np.random.Generator) -> Iterator[float]:
        """Unit-rate arrivals, mapped through the inverse of the integrated rate."""
        area = np.concatenate(([0.0], np.cumsum(np.array(self.rates) * self.period)))
        edges = self.period * np.arange(len(self.rates) + 1)
        passed = 0.0
        while True:
            unit = passed + np.cumsum(random.exponential(1.0, BLOCK))
            passed = float(unit[-1])
            cycles, inside = np.divmod(unit, area[-1])
            yield from (cycles * edges[-1] + np.interp(inside, area, edges)).tolist()

    def mean_rate(self) -> float:
        """Mean over the cycle."""
        return float(np.mean(self.rates))
