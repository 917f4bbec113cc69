"""Many adapters on one base model: S-LoRA's runs (`multi_lora.csv`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.clients import cluster_key, pool_keys
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

NEEDS = ("lora_ranks", "num_adapters", "req_rate_s", "throughput_req_s")
MEASURED = ("throughput_req_s", "latency_s_mean", "first_token_s_mean")
METHODS = ("slora", "no_mem", "mem", "dm")
"""Methods that run on the preset; those of the rows without adapters are its own."""
FIRST_S = 24e-6
"""Seconds of S-LoRA's kernels of one product with one adapter on an A10G: 1.995 against 1.892 requests/s at
saturation with 0 and 1 adapters of rank 8."""


@dataclass(frozen=True)
class MultiLora:
    """The configuration of one row."""

    serving: Setup
    adapters: int
    rank: int
    alpha: float
    rate: float
    cv: float
    duration: float
    prompt: tuple[int, int]
    output: tuple[int, int]


RESIDENT = 32
"""Adapters in device memory: S-LoRA keeps those of running sequences, about this many."""


def _gigabytes(one: MultiLora) -> float:
    """Of one adapter: two matrices of 16 bits for each of attention's four products."""
    model = one.serving.model
    return 2.0 * model.layers * 4 * one.rank * 2 * model.hidden / 1e9


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high)


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        SkippedRow: a method that is not modelled, or a trace that is not public.
    """
    method = row.text("method")
    if method == "pets":
        raise SkippedRow("no server of many adapters")
    if not row.text("num_adapters"):
        raise SkippedRow("lengths and adapters of the real trace are not public")
    adapters = round(row.number("num_adapters") or 0.0)
    if method not in METHODS or (method in ("mem", "dm") and adapters > 1):
        raise SkippedRow(f"method {method!r} is not modelled")
    if "bmm" in row.text("source") and method != "slora" and "ablation_bmm" in row.text("source"):
        raise SkippedRow("adapters copied for batched products are not modelled")
    found = setup(row, "lightllm", "", {}, "fp16")
    ranks = [int(text) for text in re.findall(r"\d+", row.text("lora_ranks"))]
    rank = round(sum(ranks[: adapters or 1]) / min(len(ranks), adapters or 1))
    question = MultiLora(
        found,
        adapters,
        rank,
        row.need("alpha"),
        row.need("req_rate_s"),
        row.need("cv"),
        row.need("duration_s"),
        _range(row.text("input_range")),
        _range(row.text("output_range")),
    )
    overloaded = row.text("flag") == "overloaded"
    measured = row.measured(*(MEASURED[:1] if overloaded else MEASURED))
    engine = f"lightllm {method}"
    return ServingCase(row.text("case_id"), file, engine, row.text("gpu"), measured, overloaded, "", question)


def scenario(one: MultiLora) -> dict[str, Any]:
    """The run as a serving scenario."""
    deployment: dict[str, Any] = {**pool_keys(one.serving), "options": {"max_context": 2048}}
    if one.adapters:
        # S-LoRA's generator draws u^(1 / alpha) of the adapters: equally often at alpha 1.
        edges = [(index / one.adapters) ** one.alpha for index in range(one.adapters + 1)]
        shares = [high - low for low, high in pairwise(edges)]
        deployment["adapters"] = {
            "count": one.adapters,
            "rank": one.rank,
            "popularity": {"shares": shares},
            "products": "attention",
            "memory": (min(one.adapters, RESIDENT) + 0.5) * _gigabytes(one),
            "options": {"first_s": FIRST_S},
        }
    sides = ("input", one.prompt), ("output", one.output)
    lengths = {name: {"kind": "uniform", "low": low, "high": high} for name, (low, high) in sides}
    return {
        "model": one.serving.model.name,
        "cluster": cluster_key(one.serving),
        "gpus": 1,
        "workload": {
            "kind": "serving",
            "requests": max(round(one.rate * one.duration), 1),
            "arrivals": {"kind": "gamma", "rate": one.rate, "cv": one.cv},
            "warmup": 0.0,
            **lengths,
        },
        "deployment": deployment,
    }


def predict(questions: Sequence[MultiLora]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    found = []
    for one in questions:
        result = serve(make_serving(scenario(one), "row", Path()))
        columns = result.records.columns()
        first, last = columns["first_s"] - columns["arrival_s"], columns["last_s"] - columns["arrival_s"]
        rate = len(result.records) / max(float(columns["last_s"].max()), one.duration)
        values = rate, float(last.mean()), float(first.mean())
        found.append(dict(zip(MEASURED, values, strict=True)))
    return found


def group_key(question: MultiLora) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key
