"""Many adapters on one base model: S-LoRA's runs (`multi_lora.csv`).

The client draws arrivals, lengths and adapters with a seed that it fixes, so each row is a replay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.clients import cluster_key, pool_keys, run_trace, trace_text, traced

NEEDS = ("lora_ranks", "num_adapters", "req_rate_s", "throughput_req_s")
MEASURED = ("throughput_req_s", "latency_s_mean", "first_token_s_mean")
METHODS = ("slora", "no_mem", "mem", "dm")
"""Methods that run on the preset; those of the rows without adapters are its own."""
KERNEL = {"first_s": 19e-6, "further_s": 0.0}
"""S-LoRA's kernels of one product on an A10G: 1.993 against 1.885 requests/s at saturation with 0 and 1
adapters of rank 8 (two rows each, replayed). One launch computes all sequences, whichever adapters they have
(slora/csrc/bgmv/bgmv_impl.cuh), so that a further adapter is its bytes alone."""
SEED = 42
"""Of the client's draws (benchmarks/run_exp.py, whose commands set no other)."""
TOKENS = 14500
"""max_total_token_num of the servers on an A10G (launch_server.py --num-token in the exp_cmds.sh)."""
APART_TOKENS = {"S1": ((200, 13500),), "S2": ((1, 13500), (20, 10000), (200, 9000))}
"""The same of servers whose adapters have memory of their own, by the most adapters of a run
(synthetic/no_mem/exp_cmds_a10g_S1.sh and _S2.sh)."""


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
    tokens: int
    """KV tokens of the server; adapters in use are taken off them."""


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
        _tokens(row.text("setting"), adapters) if method == "no_mem" else TOKENS,
    )
    overloaded = row.text("flag") == "overloaded"
    measured = row.measured(*(MEASURED[:1] if overloaded else MEASURED))
    engine = f"lightllm {method}"
    return ServingCase(row.text("case_id"), file, engine, row.text("gpu"), measured, overloaded, "", question)


def _tokens(ranks: str, adapters: int) -> int:
    return next((tokens for most, tokens in APART_TOKENS.get(ranks, ()) if adapters <= most), TOKENS)


def scenario(one: MultiLora) -> dict[str, Any]:
    """The run as a serving scenario that reads its trace."""
    options = {"max_context": 2048, "kv_blocks": one.tokens}
    deployment: dict[str, Any] = {**pool_keys(one.serving), "options": options}
    if one.adapters:
        # The client draws u^(1 / alpha) of the adapters: equally often at alpha 1.
        edges = [(index / one.adapters) ** one.alpha for index in range(one.adapters + 1)]
        shares = [high - low for low, high in pairwise(edges)]
        deployment["adapters"] = {
            "count": one.adapters,
            "rank": one.rank,
            "popularity": {"shares": shares},
            "products": "attention",
            # Servers without unified paging admit by the same rule: adapters in use are taken off the tokens.
            "memory": "shared",
            "options": KERNEL,
        }
    return {
        "model": one.serving.model.name,
        "cluster": cluster_key(one.serving),
        "gpus": 1,
        "workload": traced(_requests(one), warmup=0.0),
        "deployment": deployment,
    }


def _requests(one: MultiLora) -> int:
    return max(int(one.rate * one.duration), 1)


def trace(one: MultiLora) -> str:
    """The requests of the run: the client's own draws, in its order (benchmarks/trace.py)."""
    random, count = np.random.RandomState(SEED), _requests(one)
    random.power(one.alpha, count)  # adapters
    prompts, outputs = (random.randint(*sides, count).tolist() for sides in (one.prompt, one.output))
    gaps = random.gamma(1 / one.cv**2, one.cv**2 / one.rate, count)
    return trace_text(np.cumsum(gaps).tolist(), prompts, outputs, [0] * count)


def predict(questions: Sequence[MultiLora]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    found = []
    for one in questions:
        columns = run_trace(scenario(one), trace(one)).records.columns()
        first, last = columns["first_s"] - columns["arrival_s"], columns["last_s"] - columns["arrival_s"]
        values = len(last) / float(columns["last_s"].max()), float(last.mean()), float(first.mean())
        found.append(dict(zip(MEASURED, values, strict=True)))
    return found


def group_key(question: MultiLora) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key
