"""BurstGPT: two months and more of ChatGPT and GPT-4 requests at a campus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulator.serving.workload.traces.base import TraceFormat, TraceRow, csv_rows, number

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def _read(path: Path) -> Iterator[TraceRow]:
    """Failed requests (no response tokens) are left out."""
    start: float | None = None
    for where, cells in csv_rows(path, COLUMNS):
        time = number(cells, "Timestamp", where, float, 0)
        start = time if start is None else start
        prompt = number(cells, "Request tokens", where, int, 0)
        output = number(cells, "Response tokens", where, int, 0)
        if prompt and output:
            yield TraceRow(time - start, prompt, output, (), where)


FORMAT = TraceFormat(
    "burstgpt",
    ", ".join(COLUMNS),
    "github.com/HPMLL/BurstGPT (Wang et al., arXiv 2401.17644)",
    _read,
)
