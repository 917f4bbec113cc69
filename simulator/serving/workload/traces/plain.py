"""Meshwright's own plain form, and that of simulators before it (Vidur, splitwise-sim)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.errors import InputError
from simulator.serving.workload.traces.base import LARGEST, TraceFormat, TraceRow, csv_rows, number

CACHED = "num_cached_tokens"
COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


def _read(path: Path) -> Iterator[TraceRow]:
    time, prompt, output = COLUMNS
    for where, cells in csv_rows(path, COLUMNS, (CACHED,)):
        try:
            lengths = int(cells[prompt]), int(cells[output])
            row = TraceRow(float(cells[time]), *lengths, (), where, int(cells.get(CACHED) or 0))
            sizes = 1 <= row.prompt <= LARGEST and 1 <= row.output <= LARGEST
            if 0.0 <= row.arrival_s <= LARGEST and sizes and 0 <= row.cached <= row.prompt:
                yield row
                continue
        except (TypeError, ValueError):
            pass
        # Raises, naming the column.
        number(cells, time, where, float, 0)
        number(cells, prompt, where, int, 1)
        number(cells, output, where, int, 1)
        hits = 0 if CACHED not in cells else number(cells, CACHED, where, int, 0)
        if hits > int(cells[prompt]):
            raise InputError(f"{CACHED} ({hits:,}) exceeds the prompt ({int(cells[prompt]):,} tokens)", where)


FORMAT = TraceFormat(
    "plain",
    f"{COLUMNS[0]} (s), {COLUMNS[1]}, {COLUMNS[2]}; optional {CACHED}",
    "github.com/microsoft/vidur, trace replay",
    _read,
)
