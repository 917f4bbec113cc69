"""Requests of LLMServingSim: lengths and arrival in ns, one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulator.serving.workload.traces.base import TraceFormat, TraceRow, json_rows, number

COLUMNS = ("arrival_time_ns", "input_toks", "output_toks")


def _read(path: Path) -> Iterator[TraceRow]:
    for where, cells in json_rows(path):
        time = 1e-9 * number(cells, COLUMNS[0], where, float, 0, largest=1e18)
        prompt, output = (number(cells, column, where, int, 0) for column in COLUMNS[1:])
        if prompt and output:
            yield TraceRow(time, prompt, output, (), where)


FORMAT = TraceFormat(
    "llmservingsim",
    ", ".join(COLUMNS),
    "github.com/casys-kaist/LLMServingSim, dataset/*.jsonl",
    _read,
)
