"""Records of requests: one row per request, stored in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from simulator.serving.replica.sequence import Sequence

SECONDS = ("arrival_s", "queued_s", "scheduled_s", "first_s", "last_s")
"""Columns that hold times, s; all other columns are integers."""
PACKED = 4096
"""Rows packed together."""


class Record(NamedTuple):
    """One request and its times, s from the start of the run."""

    serial: int
    arrival_s: float
    """Time at which the client sent it."""
    queued_s: float
    """Time at which it entered the engine's queue."""
    scheduled_s: float
    """Time at which it was first put into a step."""
    first_s: float
    """Time at which its first token was streamed."""
    last_s: float
    """Time at which its last token was streamed."""
    prompt: int
    output: int
    cached: int
    """Prompt tokens found in a cache."""
    preemptions: int
    replica: int
    """The replica that gave its last token."""
    program: int
    priority: int
    retries: int
    """Number of times that a replica failure lost it and it was sent again."""


PLACES = {name: place for place, name in enumerate(Record._fields)}
"""Place of each column in a row."""


class RecordColumns(Mapping[str, np.ndarray]):
    """Rows as arrays by column in the order of serials, shape (requests,), each gathered where it is read.

    Few columns are read, and all together take as much as the rows.
    """

    def __init__(self, blocks: tuple[np.ndarray, ...]) -> None:
        self._blocks = blocks
        self._order = np.argsort(joined(blocks, "serial"), kind="stable")

    def __getitem__(self, name: str) -> np.ndarray:
        values = joined(self._blocks, name)[self._order]
        return values if name in SECONDS else values.astype(np.int64)

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


def joined(blocks: Iterable[np.ndarray], name: str) -> np.ndarray:
    """A column of the rows of some blocks."""
    return np.concatenate([np.zeros(0), *(block[:, PLACES[name]] for block in blocks)])


class Records:
    """Rows of all requests that ended, in the order of their ends."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        """Packed rows in order of ends, shape (requests, 14) each: one array would be copied as it grows."""
        self._cells: list[float] = []
        """Rows not yet packed: extending a list by a tuple is faster than filling an array."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, sequence: Sequence) -> None:
        """Keep the row of a sequence that has all its tokens."""
        serial, arrival, prompt, output, _, priority, program = sequence.request[:7]
        self._cells += (
            serial, arrival, sequence.queued_s, sequence.scheduled_s, sequence.first_s, sequence.last_s,
            prompt, output, sequence.cached, sequence.preemptions, sequence.replica, program, priority,
            sequence.retries,
        )  # fmt: skip
        self._count += 1
        if self._count % PACKED == 0:
            self._pack()

    def add_rows(self, rows: np.ndarray) -> None:
        """Keep rows of sequences that have all their tokens, shape (requests, 14), as `Record` orders
        them."""
        self._pack()
        self._blocks.append(rows)
        self._count += len(rows)

    def _pack(self) -> None:
        if self._cells:
            self._blocks.append(np.array(self._cells, dtype=np.float64).reshape(-1, len(PLACES)))
            self._cells.clear()

    def columns(self) -> RecordColumns:
        """All rows so far as arrays by column."""
        self._pack()
        return RecordColumns(tuple(self._blocks))

    def since(self, count: int) -> dict[str, np.ndarray]:
        """Rows behind the first ``count`` that ended, as arrays by column in the order of their ends."""
        self._pack()
        first, later = self._count, []
        while first > count:
            block = self._blocks[-1 - len(later)]
            first -= len(block)
            later.append(block[max(count - first, 0) :])
        rows = np.concatenate([np.zeros((0, len(PLACES))), *later[::-1]])
        return {name: rows[:, place] for name, place in PLACES.items()}

    def __iter__(self) -> Iterator[Record]:
        """Rows in the order of serials."""
        columns = self.columns()
        return (Record(*row) for row in zip(*(column.tolist() for column in columns.values()), strict=True))
