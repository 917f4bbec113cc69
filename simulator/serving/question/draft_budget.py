"""Proposals of a whole batch under one budget: those most likely to be accepted are verified.

A proposal counts only after all those before it, so the likelihood falls along a chain, and the likeliest
ones of a batch are leading parts of its chains. Where all proposals are alike the budget is divided evenly.
Wu et al., TETRIS (arXiv 2502.15197).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHAINS = 4096
"""Chains of proposals drawn for one size of a batch."""


class Verified(NamedTuple):
    """What a batch verifies under a budget."""

    queries: float
    """Mean tokens of a sequence in a step, its own among them."""
    shares: NDArray[np.float64]
    """Probability of 0, 1, ... accepted proposals, shape (tokens + 1,)."""

    @property
    def mean(self) -> float:
        """Tokens that a step yields for a sequence."""
        return float(self.shares @ np.arange(1, len(self.shares) + 1))


@lru_cache(maxsize=4096)
def verified(acceptance: float, spread: float, tokens: int, budget: int, sequences: int) -> Verified:
    """The proposals that a batch verifies.

    Args:
        acceptance: mean probability that a proposal is accepted after those before it.
        spread: its standard deviation between proposals, which the draft's confidence tells.
        tokens: proposals of a sequence.
        budget: tokens of a step over all sequences, at least one each.
        sequences: of the batch.
    """
    room = min(max(budget / sequences - 1.0, 0.0), float(tokens))
    drawn = accepted(acceptance, spread, (CHAINS, tokens), np.random.default_rng(0))
    reached = np.cumprod(drawn, axis=1)
    count = round(room * CHAINS)
    length = np.zeros(CHAINS, np.int64)
    if count:
        # Ties go along the position: an even share for every chain first.
        order = np.lexsort((np.tile(np.arange(tokens), CHAINS), -reached.ravel()))
        length = np.bincount(order[:count] // tokens, minlength=CHAINS)
    likely = np.hstack([np.ones((CHAINS, 1)), reached, np.zeros((CHAINS, 1))])
    position = np.arange(tokens + 1)
    after = np.where(position[None, :] < length[:, None], likely[:, 1:], 0.0)
    shares = np.where(position[None, :] <= length[:, None], likely[:, :-1] - after, 0.0).mean(axis=0)
    return Verified(1.0 + count / CHAINS, shares)


def accepted(
    acceptance: float, spread: float, shape: tuple[int, ...], random: np.random.Generator
) -> NDArray[np.float64]:
    """Likelihoods of proposals, each after those before it: alike, or drawn from a beta distribution."""
    if not spread:
        return np.full(shape, acceptance)
    weight = acceptance * (1.0 - acceptance) / spread**2 - 1.0
    return np.asarray(random.beta(acceptance * weight, (1.0 - acceptance) * weight, shape))
