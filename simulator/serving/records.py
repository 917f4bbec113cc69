"""What became of each request: one row a request, kept in columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simulator.serving.sequence import Sequence

INTEGERS = ("serial", "prompt", "output", "cached", "preemptions", "replica", "program")
SECONDS = ("arrival_s", "queued_s", "scheduled_s", "first_s", "last_s")


class Record(NamedTuple):
    """One request: what it was and when what happened, s from the start of the run."""

    serial: int
    arrival_s: float
    """The client sent it."""
    queued_s: float
    """The engine had it in its queue."""
    scheduled_s: float
    """It was first put into a step."""
    first_s: float
    """Its first token was streamed."""
    last_s: float
    """Its last token was streamed."""
    prompt: int
    output: int
    cached: int
    """Prompt tokens found in a cache."""
    preemptions: int
    replica: int
    """The replica that gave its last token."""
    program: int


class Records:
    """Rows of all requests that ended, in the order of their ends."""

    def __init__(self) -> None:
        self._integers = {name: array("q") for name in INTEGERS}
        self._seconds = {name: array("d") for name in SECONDS}
        columns = {**self._integers, **self._seconds}
        (
            self._serial, self._arrival, self._queued, self._scheduled, self._first, self._last,
            self._prompt, self._output, self._cached, self._preemptions, self._replica, self._program,
        ) = (columns[name].append for name in Record._fields)  # fmt: skip

    def __len__(self) -> int:
        return len(self._integers["serial"])

    def add(self, sequence: Sequence) -> None:
        """Keep the row of a sequence that has all its tokens."""
        request = sequence.request
        self._serial(request.serial)
        self._arrival(request.arrival_s)
        self._queued(sequence.queued_s)
        self._scheduled(sequence.scheduled_s)
        self._first(sequence.first_s)
        self._last(sequence.last_s)
        self._prompt(request.prompt)
        self._output(request.output)
        self._cached(sequence.cached)
        self._preemptions(sequence.preemptions)
        self._replica(sequence.replica)
        self._program(request.program)

    def columns(self) -> dict[str, np.ndarray]:
        """All rows as arrays by column, in the order of serials, shape (requests,)."""
        order = np.argsort(np.frombuffer(self._integers["serial"], dtype=np.int64), kind="stable")
        found = {
            name: np.frombuffer(values, dtype=np.int64)[order] for name, values in self._integers.items()
        }
        times = {name: np.frombuffer(values)[order] for name, values in self._seconds.items()}
        return {name: {**found, **times}[name] for name in Record._fields}

    def __iter__(self) -> Iterator[Record]:
        """Rows in the order of serials."""
        columns = self.columns()
        return (Record(*row) for row in zip(*(column.tolist() for column in columns.values()), strict=True))
