"""Mooncake: hours of Kimi's traffic with hashes of prompt blocks, which tell what prompts share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.errors import InputError, shown
from simulator.serving.workload.traces.base import TraceFormat, TraceRow, json_rows, number

MOST_IDS = 1 << 40


def _read(path: Path) -> Iterator[TraceRow]:
    for where, cells in json_rows(path):
        ids = cells.get("hash_ids", [])
        if not isinstance(ids, list) or not all(
            isinstance(block, int) and 0 <= block < MOST_IDS for block in ids
        ):
            problem = (
                f"column 'hash_ids': whole numbers from 0 to {MOST_IDS:,} are needed, found {shown(ids)}"
            )
            raise InputError(problem, where)
        time = number(cells, "timestamp", where, float, 0) * 1e-3
        prompt = number(cells, "input_length", where, int, 0)
        output = number(cells, "output_length", where, int, 0)
        if prompt and output:
            yield TraceRow(time, prompt, output, tuple(ids), where)


FORMAT = TraceFormat(
    "mooncake",
    "timestamp (ms), input_length, output_length, hash_ids",
    "github.com/kvcache-ai/Mooncake, FAST25-release/traces (Qin et al., FAST 2025)",
    _read,
    prefix_tokens=512,
)
