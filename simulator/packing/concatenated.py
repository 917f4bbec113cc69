"""Several documents a row without padding: the kernels take rows of unequal length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.packing.base import Rows
from simulator.packing.pack import Packed


class Concatenated(Packed):
    """Rows filled as `Packed` fills them, which end with their last document.

    Trainers that call this packing without padding (ms-swift, TRL's ``padding_free``) fill rows from the
    documents of many steps, so that no step has a row that its own documents leave short: ms-swift from
    1,000 at a time (swift/llm/dataset/utils.py: PackingDataset), here from those of all drawn steps.
    """

    def rows(
        self, documents: NDArray[np.int64], seq_len: int, rows: int, random: np.random.Generator
    ) -> Rows:
        """See `Packing.rows`."""
        shape = len(documents), rows
        filled = super().rows(documents.reshape(1, -1), seq_len, shape[0] * rows, random)
        real = filled.real.reshape(shape)
        return Rows(real, filled.squares.reshape(shape), real)
