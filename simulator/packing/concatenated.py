"""Several documents a row without padding: the kernels take rows of unequal length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.packing.base import Rows
from simulator.packing.pack import Packed


class Concatenated(Packed):
    """Rows filled as `Packed` fills them, which end with their last document.

    Trainers that call this packing without padding: ms-swift (swift/template/base.py: packing_row), TRL
    (``padding_free``).
    """

    def rows(
        self, documents: NDArray[np.int64], seq_len: int, rows: int, random: np.random.Generator
    ) -> Rows:
        """See `Packing.rows`."""
        filled = super().rows(documents, seq_len, rows, random)
        return Rows(filled.real, filled.squares, filled.real)
