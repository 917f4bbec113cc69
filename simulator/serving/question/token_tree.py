"""Trees of proposals grown under one budget over a batch: the likeliest nodes are verified.

A node proposes the draft's first, second, ... choice of a token. Its likelihood is that of its path, which
falls along it, so the likeliest nodes of a batch are trees. Where all first choices are alike, every step
verifies the same tree (Chen et al., Sequoia, arXiv 2402.12374); where the draft tells them apart, trees
follow its confidence (Xiong et al., DySpec, arXiv 2410.11744).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.serving.question.draft_budget import Verified, accepted

TREES = 256
"""Trees grown for one size of a batch."""
CLOSER = 0.25
"""Factor between two floors of likelihood that are tried."""


@lru_cache(maxsize=4096)
def grown(
    acceptance: float, spread: float, sibling: float, depth: int, branches: int, budget: int, sequences: int
) -> Verified:
    """The nodes that a batch verifies.

    Args:
        acceptance: mean probability that a first choice is accepted after its parent.
        spread: its standard deviation between nodes, which the draft's confidence tells.
        sibling: probability that the next choice is accepted where those before it are not.
        depth: longest path.
        branches: most choices of a node.
        budget: tokens of a step over all sequences, at least one each.
        sequences: of the batch.
    """
    count, floor = round(max(budget / sequences - 1.0, 0.0) * TREES), CLOSER
    levels, complete = _levels(acceptance, spread, sibling, depth, branches, floor)
    while not complete and sum(map(len, levels)) < count:
        floor *= CLOSER
        levels, complete = _levels(acceptance, spread, sibling, depth, branches, floor)
    likely = np.concatenate(levels)
    level = np.repeat(np.arange(1, depth + 1), [len(nodes) for nodes in levels])
    likeliest = np.argsort(-likely, kind="stable")[:count]
    reached = np.bincount(level[likeliest], likely[likeliest], depth + 2) / TREES
    reached[0] = 1.0
    return Verified(1.0 + len(likeliest) / TREES, reached[:-1] - reached[1:])


def _levels(
    acceptance: float, spread: float, sibling: float, depth: int, branches: int, floor: float
) -> tuple[list[NDArray[np.float64]], bool]:
    """Likelihoods of the nodes of each level that reach a floor, and whether all do."""
    random = np.random.default_rng(0)
    later = sibling * (1.0 - sibling) ** np.arange(branches - 1)
    nodes, levels, complete = np.ones(TREES), [], True
    for _ in range(depth):
        first = accepted(acceptance, spread, (len(nodes), 1), random)
        children = (nodes[:, None] * np.hstack([first, (1.0 - first) * later])).ravel()
        nodes = children[children >= floor]
        complete &= len(nodes) == len(children)
        levels.append(nodes)
    return levels, complete
