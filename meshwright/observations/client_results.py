"""Further results of benchmark clients: printed tables, genai-perf and inference-perf.

Read are the table that ``vllm bench serve`` and SGLang's ``bench_serving`` print, whose lines name the keys
of their files; ``profile_export_genai_perf.json`` (NVIDIA genai-perf, whose keys AIPerf kept); and
``stage_N_lifecycle_metrics.json`` of inference-perf (kubernetes-sigs/inference-perf, reportgen/base.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

TABLE = "Serving Benchmark Result"
"""Heading of a printed table of results."""
LINE = re.compile(r"^[ \t]*([A-Z][\w .()/%-]{2,60}?):[ \t]+(inf|-?[\d.]{1,24})[ \t]*$", re.MULTILINE)
MOST_LINES = 100_000
KEYS = {
    "Successful requests": "completed",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Request rate configured (RPS)": "request_rate",
    "Traffic request rate": "request_rate",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Mean TTFT (ms)": "mean_ttft_ms",
    "Median TTFT (ms)": "median_ttft_ms",
    "Mean TPOT (ms)": "mean_tpot_ms",
    "Median TPOT (ms)": "median_tpot_ms",
}
"""Lines of the table by the key of the result file."""


def tables_of(text: str) -> Iterator[dict[str, Any]]:
    """One mapping with the keys of a result file a printed table."""
    for table in text.split(TABLE)[1:MOST_LINES]:
        values: dict[str, Any] = {}
        for match in LINE.finditer(table):
            key = KEYS.get(match[1])
            if key and key not in values:
                values[key] = _float(match[2])
        yield values


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def is_inference_perf(value: Mapping[str, Any]) -> bool:
    """Whether a result is a stage of inference-perf."""
    return isinstance(value.get("load_summary"), Mapping) and isinstance(value.get("successes"), Mapping)


def of_inference_perf(value: Mapping[str, Any]) -> dict[str, Any]:
    """A stage of inference-perf; its times are in seconds."""
    load, done = value["load_summary"], value["successes"]
    latency = done.get("latency")
    latency = latency if isinstance(latency, Mapping) else {}

    def figure(part: object, *kinds: str) -> Any:
        block = part if isinstance(part, Mapping) else {}
        return next((block[kind] for kind in kinds if kind in block), None)

    entry = {
        "clients": load.get("concurrency"),
        "rate": load.get("requested_rate", load.get("achieved_rate")),
        "requests": done.get("count"),
        "prompt": figure(done.get("prompt_len"), "mean"),
        "output": figure(done.get("output_len"), "mean"),
    }
    for name, theirs in (("ttft", "time_to_first_token"), ("tpot", "time_per_output_token")):
        entry[f"{name}_mean"] = figure(latency.get(theirs), "mean")
        entry[f"{name}_p50"] = figure(latency.get(theirs), "median", "p50")
    return entry
