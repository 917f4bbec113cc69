"""One document a row, padded to the longest of its micro batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.packing.base import Array, Rows, grouped
from simulator.packing.unpadded import Unpadded


class Padded:
    """Documents padded with tokens that are computed and thrown away."""

    fills = False

    def rows(
        self, documents: NDArray[np.int64], seq_len: int, rows: int, random: np.random.Generator
    ) -> Rows:
        """See `Packing.rows`."""
        return Unpadded().rows(documents, seq_len, rows, random)

    def micro_batches(self, rows: Rows, weights: Array, replicas: int, micro_batch: int) -> Rows:
        """See `Packing.micro_batches`."""
        lengths = rows.tokens.reshape(len(rows.tokens), -1, micro_batch)
        longest = np.repeat(lengths.max(axis=-1), micro_batch, axis=-1)
        return grouped(Rows(longest, longest**2, rows.real), replicas, micro_batch)
