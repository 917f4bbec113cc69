"""Micro batches of steps over documents of unequal length, as equal sequences that cost the same."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from core.records import record
from simulator.lengths import Lengths
from simulator.packing import PACKINGS, Array, Rows

DRAWS = 64
"""Steps that are drawn."""
DOCUMENTS = 200_000
"""Documents of all drawn steps, about: steps of many documents differ less, so fewer are drawn."""
FEWEST_DRAWS = 4
SEED = 0


@record()
class MicroBatches:
    """Micro batches of the slowest replica, mean over drawn steps; every field has shape (plans,).

    Attributes:
        sequences: equal sequences that have the tokens and the squared lengths of a micro batch.
        length: tokens of each; not whole.
        late: cost of the slowest replica in the 95th percentile of steps over that in the mean step.
        context: context-parallel ranks that share each; None: those of the plan.
        stretch: seconds of the mean micro batch over those of the equal sequences.
    """

    sequences: Array
    length: Array
    late: Array
    context: Array | None = None
    stretch: Array | float = 1.0


class DrawnSteps:
    """Drawn steps of documents under one packing.

    Args:
        law: lengths of documents, cut to ``seq_len``.
        packing: a key of `PACKINGS`.
        seq_len: tokens of a row.
        rows: rows of a step.
    """

    def __init__(self, law: Lengths, packing: str, seq_len: int, rows: int) -> None:
        self.packing = PACKINGS[packing]
        self.fills = self.packing.fills
        random = np.random.default_rng(SEED)
        mean = float(np.minimum(law.draw(random, 4096), seq_len).mean())
        documents = max(round(rows * seq_len / mean), 1) if self.packing.fills else rows
        draws = int(np.clip(DOCUMENTS // documents, FEWEST_DRAWS, DRAWS))
        lengths = np.minimum(law.draw(random, draws * documents), seq_len).reshape(draws, documents)
        self.rows: Rows = self.packing.rows(lengths, seq_len, rows, random)
        self._known: dict[tuple[int, int, float], tuple[float, float, float]] = {}

    @cached_property
    def real(self) -> float:
        """Tokens of documents in a step, mean over the draws."""
        return float(self.rows.real.sum(axis=1).mean())

    @cached_property
    def mean_square(self) -> float:
        """Sum of squared lengths of a step over its tokens of documents: the length that attention feels."""
        return float(self.rows.squares.sum() / self.rows.real.sum())

    def padding(self, micro_batch: int) -> float:
        """Share of the computed tokens that is padding, with micro batches of one replica."""
        micro = self.costs(1, micro_batch, 0.0)[0]
        return 1.0 - float(micro.real.sum() / micro.tokens.sum())

    def of(self, replicas: Array, micro_batch: Array, square: float) -> MicroBatches:
        """Micro batches of plans.

        Args:
            replicas: data-parallel replicas, shape (plans,).
            micro_batch: rows of a micro batch, shape (plans,).
            square: cost of a squared token over that of a token in linear layers.
        """
        pairs = np.stack(np.broadcast_arrays(replicas, micro_batch)).astype(np.int64)
        kinds, inverse = np.unique(pairs, axis=1, return_inverse=True)
        values = [self._pair(int(data), int(micro), square) for data, micro in kinds.T]
        return MicroBatches(*np.array(values, dtype=np.float64).T[:, inverse.reshape(-1)])

    def _pair(self, replicas: int, micro_batch: int, square: float) -> tuple[float, float, float]:
        key = replicas, micro_batch, square
        if key not in self._known:
            self._known[key] = self._slowest(*key)
        return self._known[key]

    def costs(self, replicas: int, micro_batch: int, square: float) -> tuple[Rows, Array]:
        """Micro batches of the drawn steps and their costs, shape (draws, replicas, micro batches).

        A batch that does not divide is cut to whole micro batches of all replicas.
        """
        count = self.rows.tokens.shape[1]
        unit = replicas * micro_batch
        taken = slice(max(count // unit, 1) * unit) if count >= unit else slice(None)
        if count < unit:
            replicas, micro_batch = 1, count
        rows = Rows(self.rows.tokens[:, taken], self.rows.squares[:, taken], self.rows.real[:, taken])
        weights = rows.tokens + square * rows.squares
        micro = self.packing.micro_batches(rows, weights, replicas, micro_batch)
        return micro, micro.tokens + square * micro.squares

    def _slowest(self, replicas: int, micro_batch: int, square: float) -> tuple[float, float, float]:
        micro, costs = self.costs(replicas, micro_batch, square)
        total = costs.sum(axis=2)
        slowest = np.arange(len(total)), total.argmax(axis=1)
        tokens, squares = float(micro.tokens[slowest].mean()), float(micro.squares[slowest].mean())
        of_slowest = total[slowest]
        late = float(np.quantile(of_slowest, 0.95) / of_slowest.mean())
        return tokens**2 / squares, squares / tokens, max(late, 1.0)

    def paces(self, replicas: int, micro_batch: int, square: float) -> list[float]:
        """Costs of the micro batches of the slowest replica of a usual step over their mean, in their order.

        The usual step is the drawn one whose slowest replica costs the median.
        """
        costs = self.costs(replicas, micro_batch, square)[1]
        total = costs.sum(axis=2)
        largest = total.max(axis=1)
        usual = int(np.argsort(largest, kind="stable")[(len(largest) - 1) // 2])
        slowest = costs[usual, int(total[usual].argmax())]
        return (slowest / math.fsum(slowest) * len(slowest)).tolist()
