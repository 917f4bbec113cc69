"""Several documents a row, the row filled up to ``seq_len``; attention stays inside documents."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
from numpy.typing import NDArray

from simulator.packing.base import Array, Rows, grouped


class Packed:
    """Rows filled by best fit, longest document first, and shuffled; the last tokens of a row are padding.

    A document that fits no row waits for the next step. Best fit decreasing needs at most 11/9 of the fewest
    rows (Johnson et al. 1974, Worst-case performance bounds for simple one-dimensional packing algorithms).
    """

    fills = True

    def rows(
        self, documents: NDArray[np.int64], seq_len: int, rows: int, random: np.random.Generator
    ) -> Rows:
        """See `Packing.rows`."""
        packed = [_packed(lengths, seq_len, rows) for lengths in documents]
        squares, real = (np.array(values, dtype=np.float64) for values in zip(*packed, strict=True))
        order = random.permuted(np.tile(np.arange(rows), (len(packed), 1)), axis=1)
        return Rows(
            np.full(real.shape, float(seq_len)),
            np.take_along_axis(squares, order, axis=1),
            np.take_along_axis(real, order, axis=1),
        )

    def micro_batches(self, rows: Rows, weights: Array, replicas: int, micro_batch: int) -> Rows:
        """See `Packing.micro_batches`."""
        return grouped(rows, replicas, micro_batch)


def _packed(lengths: NDArray[np.int64], seq_len: int, rows: int) -> tuple[list[float], list[float]]:
    """Sum of squares and tokens of each row that one step's documents fill."""
    squares, real = [0.0] * rows, [0.0] * rows
    free = [(seq_len, row) for row in range(rows)]
    for length in np.sort(lengths)[::-1].tolist():
        at = bisect_left(free, (length, -1))
        if at == len(free):
            continue
        room, row = free.pop(at)
        squares[row] += float(length) ** 2
        real[row] += length
        insort(free, (room - length, row))
    return squares, real
