"""Search over a tree of reasoning steps."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from core.quantities import Few
from simulator.serving.workload.programs.base import SPAN, Call, Calls, Draw, Fresh, Program


class Leaf(NamedTuple):
    """A partial answer: its tokens with the prompt, and ids of their spans."""

    tokens: int
    spans: tuple[int, ...]


class TreeSearch(Program):
    """``width`` steps side by side, ``steps`` times; better leaves get more of the next steps.

    Rewards of a step are drawn, all shares that add up to one alike. With a ``price`` of KV, leaves go on by
    their reward less the price of the spans that none before shares, as many as are worth most together
    (ETS; greedy, not an integer programme); at 0 all go on (REBASE). Quality is not modelled.
    """

    kind: Literal["tree-search"] = "tree-search"
    width: Few = Field(description="steps that are written side by side")
    steps: Few = Field(description="steps of an answer")
    price: float = Field(
        default=0.0, ge=0, le=100, description="price of all KV of a step's leaves, in shares of their reward"
    )

    @property
    def depth(self) -> int:
        """Steps of an answer."""
        return self.steps

    def calls(self, draw: Draw, fresh: Fresh, prefix: tuple[int, ...], random: np.random.Generator) -> Calls:
        """See `Program.calls`."""
        prompt, output = draw()
        leaves = [Leaf(prompt, prefix + fresh(prompt // SPAN - len(prefix)))]
        for step in range(self.steps):
            shares = random.exponential(size=len(leaves))
            shares /= shares.sum()
            going_on = self.leaves_kept(leaves, shares) if self.price else range(len(leaves))
            leaves = [leaves[index] for index in going_on]
            shares = shares[list(going_on)] / shares[list(going_on)].sum()
            counts = spread(shares, self.width)
            parents = [leaf for leaf, count in zip(leaves, counts, strict=True) for _ in range(count)]
            outputs = [output if not step and not child else draw()[1] for child in range(len(parents))]
            calls = zip(parents, outputs, strict=True)
            yield [Call(0.0, leaf.tokens, generated, leaf.spans) for leaf, generated in calls]
            leaves = []
            for leaf, generated in zip(parents, outputs, strict=True):
                tokens = leaf.tokens + generated
                leaves.append(Leaf(tokens, leaf.spans + fresh(tokens // SPAN - len(leaf.spans))))

    def leaves_kept(self, leaves: list[Leaf], shares: np.ndarray) -> list[int]:
        """Numbers of the leaves that go on, in order; at least the best.

        Args:
            leaves: all of a step.
            shares: their rewards, which add up to one, shape (leaves,).
        """
        holders: dict[int, list[int]] = {}
        for index, leaf in enumerate(leaves):
            for span in set(leaf.spans):
                holders.setdefault(span, []).append(index)
        total = len(holders) or 1
        unshared = np.array([len(set(leaf.spans)) for leaf in leaves])
        worth, best_worth, count, order = 0.0, -np.inf, 1, []
        for _ in leaves:
            gains = shares - self.price * unshared / total
            gains[order] = -np.inf
            best = int(gains.argmax())
            order.append(best)
            worth += gains[best]
            for span in leaves[best].spans:
                if span in holders:
                    unshared[holders.pop(span)] -= 1
            if worth > best_worth + 1e-12:
                best_worth, count = worth, len(order)
        return sorted(order[:count])


def spread(shares: np.ndarray, count: int) -> list[int]:
    """Whole numbers in proportion to shares that add up to ``count``, the largest remainders rounded up."""
    exact = shares * count
    numbers = np.floor(exact).astype(int)
    for index in np.argsort(numbers - exact, kind="stable")[: count - int(numbers.sum())]:
        numbers[index] += 1
    return numbers.tolist()
