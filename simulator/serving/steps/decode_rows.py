"""Decode steps of many batches at once: the numbers of `IterationTable.step`, to the bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steps.table import IterationTable

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class DecodeRows:
    """Rows of a table as arrays, made when a number of decodes is first asked for.

    Args:
        table: of the step times.
    """

    def __init__(self, table: IterationTable) -> None:
        self._table, self._keys = table, table.decodes.y.astype(np.float64)
        shape = table.max_sequences + 1, len(self._keys)
        self._values, self._slopes = np.zeros(shape), np.zeros(shape)
        self._outside_s = np.full(shape[0], np.nan)
        self._below = np.array(table.below_keys, np.int64)

    def seconds(self, decodes: Ints, kv_tokens: Ints) -> Array:
        """Seconds of decode steps without prompts.

        Args:
            decodes: sequences of each batch, one or more, at most those of the table.
            kv_tokens: sum of their KV tokens.
        """
        for number in set(decodes[np.isnan(self._outside_s[decodes])].tolist()):
            values, slopes, outside_s = self._table.decode_row(number)
            self._values[number], self._outside_s[number] = values, outside_s
            self._slopes[number, :-1] = slopes
        mean = kv_tokens / decodes
        index, last = mean.astype(np.int64), len(self._below)
        at = np.where(index < last, self._below[np.minimum(index, last - 1)], len(self._keys) - 2)
        past = mean - self._keys[at]
        attention = self._values[decodes, at] + self._slopes[decodes, at] * past
        return attention + self._outside_s[decodes]
