"""One document a row, without padding: the kernels take documents of unequal length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.packing.base import Array, Rows, grouped


class Unpadded:
    """Documents as they are."""

    fills = False

    def rows(
        self, documents: NDArray[np.int64], seq_len: int, rows: int, random: np.random.Generator
    ) -> Rows:
        """See `Packing.rows`."""
        lengths = documents[:, :rows].astype(np.float64)
        return Rows(lengths, lengths**2, lengths)

    def micro_batches(self, rows: Rows, weights: Array, replicas: int, micro_batch: int) -> Rows:
        """See `Packing.micro_batches`."""
        return grouped(rows, replicas, micro_batch)
