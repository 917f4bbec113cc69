"""Mooncake: hours of Kimi's traffic with hashes of prompt blocks, which tell what prompts share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.errors import InputError, shown
from simulator.serving.workload.traces.base import TraceFormat, TraceRow, json_rows, number

MOST_IDS = 1 << 40
BLOCK = 512
"""Tokens that a hash stands for."""


def hashes(cells: Mapping[str, Any], prompt: int, block: int, where: str) -> tuple[int, ...]:
    """The hashes of a prompt's blocks.

    Raises:
        InputError: no list of whole numbers, or more of them than the prompt has blocks.
    """
    ids = cells.get("hash_ids", [])
    if not isinstance(ids, list) or not all(
        isinstance(hashed, int) and 0 <= hashed < MOST_IDS for hashed in ids
    ):
        problem = f"column 'hash_ids': whole numbers from 0 to {MOST_IDS:,} are needed, found {shown(ids)}"
        raise InputError(problem, where)
    if len(ids) > -(-prompt // block) + 1:
        problem = f"column 'hash_ids': {len(ids):,} hashes for {prompt:,} tokens, of {block} tokens each"
        raise InputError(f"{problem}; is the trace in another format (Qwen-Bailian has 16 a hash)?", where)
    return tuple(ids)


def hashed_rows(path: Path, clock_s: float, block: int) -> Iterator[TraceRow]:
    """Rows of a trace whose hashes stand for ``block`` tokens, with timestamps in units of ``clock_s``."""
    for where, cells in json_rows(path):
        time = number(cells, "timestamp", where, float, 0) * clock_s
        prompt = number(cells, "input_length", where, int, 0)
        output = number(cells, "output_length", where, int, 0)
        ids = hashes(cells, prompt, block, where)
        if prompt and output:
            yield TraceRow(time, prompt, output, ids, where)


FORMAT = TraceFormat(
    "mooncake",
    "timestamp (ms), input_length, output_length, hash_ids",
    "github.com/kvcache-ai/Mooncake, FAST25-release/traces (Qin et al., FAST 2025)",
    lambda path: hashed_rows(path, 1e-3, BLOCK),
    prefix_tokens=BLOCK,
)
