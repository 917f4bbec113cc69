"""Qwen-Bailian: hours of Alibaba's traffic with conversations and hashes of prompt blocks."""

from __future__ import annotations

from simulator.serving.workload.traces.base import TraceFormat
from simulator.serving.workload.traces.mooncake import hashed_rows

COLUMNS = ("chat_id", "timestamp", "input_length", "output_length")
BLOCK = 16
"""Tokens that a hash stands for."""

FORMAT = TraceFormat(
    "bailian",
    "chat_id, timestamp (s), input_length, output_length, hash_ids",
    "github.com/alibaba-edu/qwen-bailian-usagetraces-anon (Wang et al., USENIX ATC 2025)",
    lambda path: hashed_rows(path, 1.0, BLOCK),
    prefix_tokens=BLOCK,
)
