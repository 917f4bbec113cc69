"""Records of requests: one row per request, stored in columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
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


class Records:
    """Rows of all requests that ended, in the order of their ends."""

    def __init__(self) -> None:
        self._whole = array("d")
        """Packed rows, in order of ends."""
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
        self._whole.frombytes(np.ascontiguousarray(rows, dtype=np.float64).tobytes())
        self._count += len(rows)

    def _pack(self) -> None:
        self._whole.frombytes(np.array(self._cells, dtype=np.float64).tobytes())
        self._cells.clear()

    def columns(self) -> dict[str, np.ndarray]:
        """All rows as arrays by column, in the order of serials, shape (requests,)."""
        self._pack()
        cells = np.frombuffer(self._whole).reshape(-1, len(Record._fields))
        order = np.argsort(cells[:, 0], kind="stable")
        # A column at a time: sorted rows would be one more copy of all.
        return {
            name: values[order] if name in SECONDS else values[order].astype(np.int64)
            for name, values in zip(Record._fields, cells.T, strict=True)
        }

    def since(self, count: int) -> dict[str, np.ndarray]:
        """Rows behind the first ``count`` that ended, as arrays by column in the order of their ends."""
        self._pack()
        cells = np.frombuffer(self._whole).reshape(-1, len(Record._fields))[count:].copy()
        return dict(zip(Record._fields, cells.T, strict=True))

    def __iter__(self) -> Iterator[Record]:
        """Rows in the order of serials."""
        columns = self.columns()
        return (Record(*row) for row in zip(*(column.tolist() for column in columns.values()), strict=True))
