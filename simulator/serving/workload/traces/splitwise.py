"""Requests as splitwise-sim generates them from Azure's traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulator.serving.workload.traces.base import TraceFormat, TraceRow, csv_rows, number

COLUMNS = ("arrival_timestamp", "prompt_size", "token_size")


def _read(path: Path) -> Iterator[TraceRow]:
    for where, cells in csv_rows(path, COLUMNS):
        time = number(cells, COLUMNS[0], where, float, 0)
        prompt, output = (number(cells, column, where, int, 0) for column in COLUMNS[1:])
        if prompt and output:
            yield TraceRow(time, prompt, output, (), where)


FORMAT = TraceFormat(
    "splitwise",
    f"{COLUMNS[0]} (s), {COLUMNS[1]}, {COLUMNS[2]}",
    "github.com/Mutinifni/splitwise-sim, generate_trace.py",
    _read,
)
