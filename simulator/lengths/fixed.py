"""The same length for all."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from core.quantities import Tokens
from simulator.lengths.base import Lengths


class FixedLength(Lengths):
    """One length."""

    kind: Literal["fixed"] = "fixed"
    tokens: Tokens = Field(description="tokens")

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """See `Lengths.draw`."""
        return np.full(count, self.tokens)

    def mean(self) -> float:
        """The length."""
        return float(self.tokens)

    def longest(self) -> int:
        """The length."""
        return self.tokens
