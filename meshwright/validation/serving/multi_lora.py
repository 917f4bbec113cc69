"""Many adapters on one base model: S-LoRA's runs.

The client draws arrivals, lengths and adapters with a seed that it fixes, so each row is a replay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from meshwright.validation.serving.case import MeasuredRow, Question, ServingCase
from meshwright.validation.serving.clients import latencies, run_trace, scenario_of, trace_text, traced
from meshwright.validation.serving.collection import Collection

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
class MultiLora(Question):
    """The configuration of one row."""

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


def question(row: MeasuredRow, collection: Collection) -> MultiLora:
    """The question of a row."""
    method, adapters = row.text("method"), round(row.number("num_adapters") or 0.0)
    ranks = [int(text) for text in re.findall(r"\d+", row.text("lora_ranks"))]
    return MultiLora(
        collection.replica(row),
        adapters,
        rank=round(sum(ranks[: adapters or 1]) / min(len(ranks), adapters or 1)),
        prompt=_range(row.text("input_range")),
        output=_range(row.text("output_range")),
        tokens=_tokens(row.text("setting"), adapters) if method == "no_mem" else TOKENS,
        **collection.values(row),
    )


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """Methods are engines of their own in summaries."""
    return {"engine": f"lightllm {row.text('method')}"}


def _tokens(ranks: str, adapters: int) -> int:
    return next((tokens for most, tokens in APART_TOKENS.get(ranks, ()) if adapters <= most), TOKENS)


def scenario(run: MultiLora) -> dict[str, Any]:
    """The run as a serving scenario that reads its trace."""
    keys: dict[str, Any] = {"options": {"max_context": 2048, "kv_blocks": run.tokens}}
    if run.adapters:
        # The client draws u^(1 / alpha) of the adapters: equally often at alpha 1.
        edges = [(index / run.adapters) ** run.alpha for index in range(run.adapters + 1)]
        shares = [high - low for low, high in pairwise(edges)]
        keys["adapters"] = {
            "count": run.adapters,
            "rank": run.rank,
            "popularity": {"shares": shares},
            "products": "attention",
            # Servers without unified paging admit by the same rule: adapters in use are taken off the tokens.
            "memory": "shared",
            "options": KERNEL,
        }
    return {"gpus": 1, **scenario_of(run.serving, traced(_requests(run), warmup=0.0), **keys)}


def _requests(run: MultiLora) -> int:
    return max(int(run.rate * run.duration), 1)


def trace(run: MultiLora) -> str:
    """The requests of the run: the client's own draws, in its order (benchmarks/trace.py)."""
    random, count = np.random.RandomState(SEED), _requests(run)
    random.power(run.alpha, count)  # adapters
    prompts, outputs = (random.randint(*sides, count).tolist() for sides in (run.prompt, run.output))
    gaps = random.gamma(1 / run.cv**2, run.cv**2 / run.rate, count)
    return trace_text(np.cumsum(gaps).tolist(), prompts, outputs, [0] * count)


def predict(questions: Sequence[MultiLora]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    return [_columns(run) for run in questions]


def _columns(run: MultiLora) -> dict[str, float]:
    result = run_trace(scenario(run), trace(run))
    last_s, seconds = result.records.columns()["last_s"], latencies(result)
    return {
        "throughput_req_s": len(last_s) / float(last_s.max()),
        "latency_s_mean": float(seconds["e2e"].mean()),
        "first_token_s_mean": float(seconds["ttft"].mean()),
    }
