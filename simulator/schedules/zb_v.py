"""ZB-V: two chunks per rank in a V, so that the first rank's loss is near and memory is even."""

from __future__ import annotations

from collections import Counter

from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    WEIGHT,
    Array,
    Task,
)
from simulator.schedules.greedy import Greedy, Rules


class ZeroBubbleV(Greedy):
    """Zero-bubble schedule on V-shaped placement at the memory of 1F1B."""

    name = "zb-v"
    rule = "2 or more stages, two chunks per rank and at least as many micro batches as stages"
    source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241), section 6"
    returns = True
    splits_backward = True
    post_validation = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """Two chunks per rank, enough micro batches to fill the pipeline."""
        return (p >= 2) & (m >= p) & (v == 2)

    def rules(self, stages: int, micro_batches: int, chunks: int) -> list[Rules]:
        """As many activations as the handcrafted order, which these shorten for very unequal passes."""
        return [Rules(2 * stages, split=True, patience=patience) for patience in (0.0, 0.3, 0.6, 1.0)]

    def handcrafted(self, stages: int, micro_batches: int) -> list[list[list[Task]]]:
        """Without bubble where all passes take equally long and there are 2p - 1 micro batches."""
        return [[_rank_order(stages, micro_batches, rank) for rank in range(stages)]]


class _Order:
    """One rank's order; passes of a kind and chunk go by micro batch, and stop when all have run."""

    def __init__(self, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.done: Counter[tuple[str, int]] = Counter()
        self.tasks: list[Task] = []

    def run(self, *passes: tuple[str, int]) -> None:
        """Run one pass of each of these kinds and chunks."""
        for kind, chunk in passes:
            if self.done[kind, chunk] < self.micro_batches:
                self.tasks.append(Task(kind, self.done[kind, chunk], chunk))
                self.done[kind, chunk] += 1

    def left(self, kind: str, chunk: int) -> int:
        """Micro batches that have not run yet."""
        return self.micro_batches - self.done[kind, chunk]


def _rank_order(stages: int, micro_batches: int, rank: int) -> list[Task]:
    """Fill with forwards down the V, then alternate both chunks, then drain (Qi et al., figure 7)."""
    order = _Order(micro_batches)
    down, up = ((FORWARD, 0), (BACKWARD, 0), (WEIGHT, 0)), ((FORWARD, 1), (BACKWARD, 1), (WEIGHT, 1))
    for _ in range(2 * (stages - rank) - 1):
        order.run((FORWARD, 0))
    for _ in range(rank):
        order.run((FORWARD, 1), (FORWARD, 0))
    for _ in range(stages - rank):
        order.run(*up)
    while order.left(FORWARD, 0) or order.left(FORWARD, 1):
        order.run(*down, *up)
    for _ in range(rank):
        order.run((BACKWARD, 0), (BACKWARD, 1))
    for _ in range(stages - rank):
        order.run((BACKWARD, 0), (WEIGHT, 0))
    for kind, chunk in ((BACKWARD, 1), (BACKWARD, 0), (WEIGHT, 1), (WEIGHT, 0)):
        order.run(*[(kind, chunk)] * order.left(kind, chunk))
    return order.tasks
