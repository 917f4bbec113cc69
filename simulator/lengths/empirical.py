"""Observed lengths."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from core.quantities import Tokens
from simulator.lengths.base import Lengths


class Empirical(Lengths):
    """Given lengths, drawn in proportion to their weights."""

    kind: Literal["empirical"] = "empirical"
    tokens: list[Tokens] = Field(min_length=1, description="lengths")
    weights: list[Annotated[float, Field(ge=0)]] = Field(
        default_factory=list, description="how often each is drawn; default: equally often"
    )

    @model_validator(mode="after")
    def _matched(self) -> Empirical:
        if self.weights and (len(self.weights) != len(self.tokens) or not sum(self.weights)):
            raise ValueError(f"weights: one for each of the {len(self.tokens)} lengths, not all zero")
        return self

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """See `Lengths.draw`."""
        return random.choice(np.array(self.tokens), count, p=self._shares())

    def mean(self) -> float:
        """Weighted mean."""
        return float(np.average(self.tokens, weights=self._shares()))

    def longest(self) -> int:
        """The longest given length."""
        return max(self.tokens)

    def _shares(self) -> np.ndarray | None:
        weights = np.array(self.weights)
        return weights / weights.sum() if self.weights else None
