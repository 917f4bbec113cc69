"""Lengths between two bounds, as benchmark clients jitter them."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from core.quantities import Tokens
from simulator.lengths.base import Lengths


class UniformLength(Lengths):
    """Whole numbers from ``low`` to ``high`` with equal probability.

    The random data set of vLLM's benchmark client with ``--random-range-ratio r`` draws from
    ``[r n, n]`` in its older form.
    """

    kind: Literal["uniform"] = "uniform"
    low: Tokens = Field(description="fewest tokens")
    high: Tokens = Field(description="most tokens")

    @model_validator(mode="after")
    def _ordered(self) -> UniformLength:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """See `Lengths.draw`."""
        return random.integers(self.low, self.high, count, endpoint=True)

    def mean(self) -> float:
        """The middle."""
        return 0.5 * (self.low + self.high)

    def longest(self) -> int:
        """The upper bound."""
        return self.high
