"""Qwen-Bailian: hours of Alibaba's traffic with conversations and hashes of prompt blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulator.serving.workload.traces.base import TraceFormat, TraceRow, json_rows, number
from simulator.serving.workload.traces.mooncake import hashes

COLUMNS = ("chat_id", "timestamp", "input_length", "output_length")
BLOCK = 16
"""Tokens that a hash stands for."""


def _read(path: Path) -> Iterator[TraceRow]:
    for where, cells in json_rows(path):
        time = number(cells, "timestamp", where, float, 0)
        prompt = number(cells, "input_length", where, int, 0)
        output = number(cells, "output_length", where, int, 0)
        ids = hashes(cells, prompt, BLOCK, where)
        if prompt and output:
            yield TraceRow(time, prompt, output, ids, where)


FORMAT = TraceFormat(
    "bailian",
    "chat_id, timestamp (s), input_length, output_length, hash_ids",
    "github.com/alibaba-edu/qwen-bailian-usagetraces-anon (Wang et al., USENIX ATC 2025)",
    _read,
    prefix_tokens=BLOCK,
)
