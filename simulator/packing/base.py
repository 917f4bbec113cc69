"""Interface of packings: how the documents of a step become rows, and rows the micro batches of replicas."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from core.records import record

Array = NDArray[np.float64]


@record()
class Rows:
    """Rows of drawn steps, shape (draws, rows).

    Attributes:
        tokens: tokens that the linear layers compute, with padding.
        squares: sum of the squared lengths of a row's documents, which attention's cost follows.
        real: tokens of documents.
    """

    tokens: Array
    squares: Array
    real: Array

    def __getitem__(self, index: tuple[NDArray, NDArray]) -> Rows:
        return Rows(self.tokens[index], self.squares[index], self.real[index])


class Packing(Protocol):
    """How documents are laid in rows, and rows in micro batches."""

    fills: bool
    """Whether rows are filled up to ``seq_len`` with several documents."""

    def rows(
        self, documents: NDArray[np.int64], seq_len: int, rows: int, random: np.random.Generator
    ) -> Rows:
        """Rows of one step each.

        Args:
            documents: lengths in the order of drawing, shape (draws, documents), at most ``seq_len`` each.
            seq_len: tokens of a row.
            rows: rows of a step.
            random: order of the rows, where documents are sorted to fill them.
        """
        ...

    def micro_batches(self, rows: Rows, weights: Array, replicas: int, micro_batch: int) -> Rows:
        """Rows of micro batches added up.

        Args:
            rows: of ``rows``.
            weights: cost of a row, any unit, shape (draws, rows).
            replicas: data-parallel replicas.
            micro_batch: rows of a micro batch.

        Returns:
            Micro batches, shape (draws, replicas, micro batches).
        """
        ...


def grouped(rows: Rows, replicas: int, micro_batch: int) -> Rows:
    """Rows in their order, dealt to replicas and added up by micro batches.

    Returns:
        Micro batches, shape (draws, replicas, micro batches).
    """
    draws, count = rows.tokens.shape
    shape = draws, replicas, count // (replicas * micro_batch), micro_batch
    return Rows(*(values.reshape(shape).sum(axis=-1) for values in (rows.tokens, rows.squares, rows.real)))
