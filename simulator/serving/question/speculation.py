"""Speculative decoding of a pool, as a deployment states it."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from hwmodels.loading import Strict


class Speculation(Strict):
    """Speculation of a pool."""

    draft: str | dict[str, Any] = Field(description="draft model: catalogue name, path or mapping")
    tokens: int = Field(ge=1, le=64, description="tokens that the draft model proposes in a step")
    acceptance: Annotated[float, Field(ge=0, lt=1)] | list[Annotated[float, Field(ge=0)]] = Field(
        description="probability that a proposal is accepted after those before it; or a list of how often "
        "0, 1, ... `tokens` of them are"
    )

    def shares(self) -> np.ndarray:
        """Probability of 0 to ``tokens`` accepted proposals, shape (tokens + 1,)."""
        if isinstance(self.acceptance, list):
            given = np.zeros(self.tokens + 1)
            given[: len(self.acceptance)] = self.acceptance[: self.tokens + 1]
            return given / given.sum()
        reached = self.acceptance ** np.arange(self.tokens + 1)
        return reached - np.append(reached[1:], 0.0)

    def mean(self) -> float:
        """Tokens that a step yields on average."""
        return float(self.shares() @ np.arange(1, self.tokens + 2))
