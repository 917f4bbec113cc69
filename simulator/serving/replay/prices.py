"""Step times of an iteration table as columns, and their lookups: the sums of `IterationTable` in their
order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from simulator.serving.replay.kernels import kernel
from simulator.serving.steps.joined import knots_below
from simulator.serving.steps.table import NO_END, IterationTable

# Head of ``prices``.
POWER, PREFILL_FACTOR, LEAST_MIXED_S, SEQUENCE_S, EAGER_ABOVE = range(5)
FIRST_PRICE = 5
# ``marks``: where each part begins in ``prices``, and its length.
KEYS, KEY_COUNT, ROWS, ROW_WIDTH, ROW_COUNT = range(5)
MIXED, MIXED_COUNT, HEADS, HEAD_COUNT, HOSTS, HOST_COUNT = range(5, 11)
CHUNKS, CHUNKS_X, CHUNKS_Y, CHUNK_COLUMNS = range(11, 15)
# Where each list of knots below begins in ``marks``, and its length.
BELOW_KEYS, BELOW_KEY_COUNT, BELOW_X, BELOW_X_COUNT, BELOW_Y, BELOW_Y_COUNT = range(15, 21)
FIRST_MARK = 21


@dataclass(frozen=True, eq=False)
class TableColumns:
    """A table as two columns.

    Attributes:
        prices, marks: numbers of the table, and where its parts begin among them.
    """

    prices: NDArray[np.float64]
    marks: NDArray[np.int64]

    @cached_property
    def lists(self) -> list[Any]:
        """The columns as lists."""
        return [self.prices.tolist(), self.marks.tolist()]

    def reach(self, decodes: int, tokens: int, chunk: int, context: int) -> bool:
        """Whether the table prices every step up to a number of decodes, query tokens, tokens of a chunk, and
        tokens of a sequence."""
        marks = self.marks
        return (
            decodes < marks[ROW_COUNT]
            and tokens < marks[MIXED_COUNT]
            and 2 * decodes < marks[HEAD_COUNT]
            and chunk < marks[BELOW_X_COUNT]
            and context < marks[BELOW_Y_COUNT]
        )

    @classmethod
    def of(cls, table: IterationTable) -> TableColumns:
        """The columns of a table.

        ``ROWS`` holds for each number of decodes the seconds of their attention at the knots of their mean
        KV and the slopes between them, the same beside prompts, and seconds outside of attention and of the
        host.
        """
        keys, counts = table.decodes.y, np.arange(table.max_sequences + 1)
        widths, lines = np.diff(keys), []
        for grid in (table.decodes, table.mixed):
            values = grid(counts[:, None].astype(float), keys[None, :])
            lines += [values, np.diff(values, axis=1) / widths]
        hosts = np.array(table.host_s)
        outside = hosts[counts] + table.padded_s[counts] + table.head_s[counts]
        rows = np.concatenate([*lines, outside[:, None], hosts[counts, None]], axis=1)
        chunks = table.chunks
        parts = {
            KEYS: keys,
            ROWS: rows,
            MIXED: table.mixed_s,
            HEADS: table.head_s,
            HOSTS: hosts,
            CHUNKS: chunks.z,
            CHUNKS_X: chunks.x,
            CHUNKS_Y: chunks.y,
        }
        head = [table.overlap_exponent, table.prefill_factor, table.least_mixed_s, table.sequence_s]
        head.append(table.eager_above)
        prices, marks = [np.array(head)], np.zeros(FIRST_MARK, np.int64)
        at = FIRST_PRICE
        for mark, part in parts.items():
            marks[mark] = at
            prices.append(np.asarray(part, float).ravel())
            at += part.size
        lengths = {
            KEY_COUNT: len(keys),
            ROW_WIDTH: rows.shape[1],
            ROW_COUNT: len(rows),
            MIXED_COUNT: len(table.mixed_s),
            HEAD_COUNT: len(table.head_s),
            HOST_COUNT: len(hosts),
            CHUNK_COLUMNS: len(chunks.y),
        }
        for mark, length in lengths.items():
            marks[mark] = length
        below = {BELOW_KEYS: keys, BELOW_X: chunks.x, BELOW_Y: chunks.y}
        columns, at = [marks], FIRST_MARK
        for mark, axis in below.items():
            places = knots_below(axis)
            marks[mark], marks[mark + 1] = at, len(places)
            columns.append(places)
            at += len(places)
        return cls(np.concatenate(prices), np.concatenate(columns))


_MADE: WeakKeyDictionary[IterationTable, TableColumns] = WeakKeyDictionary()


def prices_of(table: IterationTable) -> TableColumns:
    """The columns of a table, made once."""
    if table not in _MADE:
        _MADE[table] = TableColumns.of(table)
    return _MADE[table]


@kernel
def chunk_seconds(prices: Any, marks: Any, queries: int, before: int) -> float:
    """Seconds of attention of a prompt chunk over its cached tokens; see
    `IterationTable.chunk_attention_s`."""
    i, j = marks[marks[BELOW_X] + queries], marks[marks[BELOW_Y] + before]
    x, y, columns = marks[CHUNKS_X] + i, marks[CHUNKS_Y] + j, marks[CHUNK_COLUMNS]
    low = marks[CHUNKS] + i * columns + j
    high = low + columns
    u = (queries - prices[x]) / (prices[x + 1] - prices[x])
    v = (before - prices[y]) / (prices[y + 1] - prices[y])
    if v == 0.0:
        return prices[low] * (1 - u) + prices[high] * u
    return (prices[low] * (1 - v) + prices[low + 1] * v) * (1 - u) + (
        prices[high] * (1 - v) + prices[high + 1] * v
    ) * u


@kernel
def step_seconds(
    prices: Any,
    marks: Any,
    decodes: int,
    kv_tokens: int,
    chunks: int,
    prompt: int,
    chunks_s: float,
) -> float:
    """Seconds of one step; see `IterationTable.step`.

    Args:
        prices, marks: columns.
        decodes, kv_tokens: sequences that decode, and their KV tokens.
        chunks, prompt, chunks_s: prompt chunks, their tokens, and seconds of their attention alone.
    """
    alone, beside, decode_s = 0.0, 0.0, 0.0
    if decodes:
        count = marks[KEY_COUNT]
        row = marks[ROWS] + decodes * marks[ROW_WIDTH]
        mean = kv_tokens / decodes
        index = int(mean)
        at = marks[marks[BELOW_KEYS] + index] if index < marks[BELOW_KEY_COUNT] else count - 2
        past = mean - prices[marks[KEYS] + at]
        attention = prices[row + at] + prices[row + count + at] * past
        last = row + 4 * count - 2
        decode_s = attention + prices[last]
        if not chunks:
            return decode_s
        alone = decode_s - prices[last + 1]
        mixed_row = row + 2 * count - 1
        beside = prices[mixed_row + at] + prices[mixed_row + count + at] * past
    elif not chunks:
        return 0.0
    tokens, sequences = decodes + prompt, decodes + chunks
    if beside != 0.0:
        power = prices[POWER]
        chunks_s = (chunks_s**power + beside**power) ** (1.0 / power) if power != 1.0 else chunks_s + beside
    mixed = prices[marks[MIXED] + tokens]
    mixed += prices[marks[HEADS] + sequences]
    mixed += chunks_s
    hosts = marks[HOST_COUNT]
    if sequences < hosts:
        around = prices[marks[HOSTS] + sequences]
    else:
        around = prices[marks[HOSTS] + hosts - 1] + prices[SEQUENCE_S] * (sequences + 1 - hosts)
    seconds = around + alone + prices[PREFILL_FACTOR] * (mixed - alone)
    least = prices[LEAST_MIXED_S]
    if decodes > prices[EAGER_ABOVE]:
        least = max(least, decode_s)
    return seconds if seconds > least else least


@kernel
def stretch_seconds(prices: Any, marks: Any, decodes: int, kv_tokens: int) -> tuple[float, float, int]:
    """Seconds of the first of equal decode steps, their growth, and steps to the next knot of the table."""
    count = marks[KEY_COUNT]
    row = marks[ROWS] + decodes * marks[ROW_WIDTH]
    mean = kv_tokens / decodes
    index = int(mean)
    at = marks[marks[BELOW_KEYS] + index] if index < marks[BELOW_KEY_COUNT] else count - 2
    slope = prices[row + count + at]
    key = marks[KEYS] + at
    first = prices[row + at] + slope * (mean - prices[key]) + prices[row + 4 * count - 2]
    if at + 2 >= count:
        return first, slope, NO_END
    steps = int(prices[key + 1] - mean) + 1
    return first, slope, steps if steps > 1 else 1
