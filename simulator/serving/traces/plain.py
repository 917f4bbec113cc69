"""Meshwright's own plain form, and that of simulators before it (Vidur, splitwise-sim)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulator.serving.traces.base import Row, TraceFormat, csv_rows, number

COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


def _read(path: Path) -> Iterator[Row]:
    for where, cells in csv_rows(path, COLUMNS):
        yield Row(
            number(cells, COLUMNS[0], where, float, 0),
            number(cells, COLUMNS[1], where, int, 1),
            number(cells, COLUMNS[2], where, int, 1),
            where=where,
        )


FORMAT = TraceFormat(
    "plain",
    f"{COLUMNS[0]} (s), {COLUMNS[1]}, {COLUMNS[2]}",
    "github.com/microsoft/vidur, trace replay",
    _read,
)
