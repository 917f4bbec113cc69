"""Meshwright's own plain form, and that of simulators before it (Vidur, splitwise-sim)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulator.serving.workload.traces.base import LARGEST, TraceFormat, TraceRow, csv_rows, number

COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


def _read(path: Path) -> Iterator[TraceRow]:
    time, prompt, output = COLUMNS
    for where, cells in csv_rows(path, COLUMNS):
        try:
            row = TraceRow(float(cells[time]), int(cells[prompt]), int(cells[output]), (), where)
            if 0.0 <= row[0] <= LARGEST and 1 <= row[1] <= LARGEST and 1 <= row[2] <= LARGEST:
                yield row
                continue
        except (TypeError, ValueError):
            pass
        # Raises, naming the column.
        number(cells, time, where, float, 0)
        number(cells, prompt, where, int, 1)
        number(cells, output, where, int, 1)


FORMAT = TraceFormat(
    "plain",
    f"{COLUMNS[0]} (s), {COLUMNS[1]}, {COLUMNS[2]}",
    "github.com/microsoft/vidur, trace replay",
    _read,
)
