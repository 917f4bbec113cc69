"""TensorRT-LLM's published tables: maximum throughput and first-token latency (`trtllm_tables.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.clients import cluster_key, pool_keys, run
from meshwright.validation.serving.trtllm_bench import BenchLimits, bench_limits
from simulator.serving.result import ServingResult
from simulator.serving.steady.batch_run import batch_run
from simulator.serving.steady.kinds import kv_tokens, table_of
from simulator.serving.steady.steady import Limits, Load, steady_state

NEEDS = ("kind", "backend", "input_tokens", "output_tokens", "mfu")
MEASURED = ("out_tok_s", "out_tok_s_per_gpu", "ttft_ms")
FREE_SHARE = 0.92
"""Middle of the stated KV fractions, 0.90 to 0.95."""


@dataclass(frozen=True)
class TableCase:
    """The configuration of one row."""

    serving: Setup
    kind: str
    batch: float
    requests: float
    prompt: float
    output: float
    limits: BenchLimits | None
    """Of the benchmark; None: the engine's defaults."""


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    precision = row.text("weight_precision")
    pool: dict[str, Any] = {"tensor": row.count("tp"), "pipeline": row.count("pp")}
    if "attention data parallelism" in row.text("notes"):
        pool = {"data": row.count("tp"), "expert": row.count("tp"), "pipeline": row.count("pp")}
    found = setup(row, row.text("engine", "trtllm"), row.text("engine_version", "0.5.0"), pool, precision)
    if precision == "fp4" and not found.pool.kv and found.cluster.device.generation == "blackwell":
        # The page states fp8 for MXFP4 checkpoints, which carry no scales, and "auto" on Hopper.
        found = replace(found, pool=found.pool.model_copy(update={"kv": "fp8"}))
    at_most = row.text("kind") == "max_throughput"  # as many requests together as memory holds
    prompt, output = row.need("input_tokens"), row.need("output_tokens")
    limits = None
    if at_most and found.engine.graph_sizes.value:
        limits = bench_limits(found, prompt, output, FREE_SHARE)
        captured = {"graph_sizes": limits.graphs}
        found = replace(found, pool=found.pool.model_copy(update=captured))
    question = TableCase(
        found,
        row.text("kind"),
        (row.number("batch") or 0.0) if at_most else row.need("batch"),
        row.number("num_requests") or 0.0,
        prompt,
        output,
        limits,
    )
    return ServingCase(
        row.text("case_id"),
        file,
        found.engine.name,
        row.text("gpu"),
        row.measured(*MEASURED),
        bool(row.text("flag")),
        "",
        question,
    )


def scenario(one: TableCase) -> dict[str, Any] | None:
    """The run of `trtllm-bench throughput` as a serving scenario: all requests at once.

    None of other rows, and of attention ranks in a pipeline, which the event engine has not.
    """
    staged = one.serving.pool.data > 1 and one.serving.pool.pipeline > 1
    if one.limits is None or not one.requests or staged:
        return None
    options = {
        "prefix_caching": False,
        "token_budget": one.limits.tokens,
        "max_sequences": one.limits.batch * one.serving.pool.pipeline,
        "max_context": round(one.prompt + one.output),
        "memory_share": FREE_SHARE,
    }
    return {
        "model": one.serving.model.name,
        "cluster": cluster_key(one.serving),
        "workload": {
            "kind": "serving",
            "requests": round(one.requests),
            "arrivals": {"kind": "burst"},
            "input": round(one.prompt),
            "output": round(one.output),
        },
        "deployment": {**pool_keys(one.serving), "options": options},
    }


def predict(questions: Sequence[TableCase]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    runs = [scenario(one) for one in questions]
    if None in runs:
        return predict_steady(questions)
    devices = questions[0].serving.pool.devices
    rates = [_rate(run(one)) for one in runs if one is not None]
    return [{"out_tok_s": rate, "out_tok_s_per_gpu": rate / devices} for rate in rates]


def _rate(result: ServingResult) -> float:
    """Tokens out a second from the first arrival to the last token."""
    columns = result.records.columns()
    return float(columns["output"].sum() / columns["last_s"].max())


def predict_steady(questions: Sequence[TableCase]) -> list[dict[str, float]]:
    """As `predict`, from steady states."""
    found = questions[0].serving
    device = found.cluster.device
    if questions[0].kind == "max_throughput":
        return [_maximum(found, one) for one in questions]
    batch, prompt, output = np.array([(one.batch, one.prompt, one.output) for one in questions]).T
    budget = max(found.engine.token_budget(device), float(np.max(prompt)))
    table = table_of(found, budget, float(np.max(batch)), float(np.max(prompt + output)))
    together = batch_run(table, batch, prompt, output, budget)
    rate = batch * output / together.total_s
    return [
        {
            "out_tok_s": float(rate[i]),
            "out_tok_s_per_gpu": float(rate[i]) / found.pool.devices,
            "ttft_ms": 1e3 * float(together.prefill_s[i] + found.engine.first_token_s.value),
        }
        for i in range(len(questions))
    ]


def _maximum(found: Setup, one: TableCase) -> dict[str, float]:
    """All requests queued at once: as many run as memory holds."""
    device = found.cluster.device
    budget, most = max(found.engine.token_budget(device), one.prompt), found.engine.sequence_limit(device)
    if one.limits is not None:
        budget, most = one.limits.tokens, one.limits.batch * found.pool.pipeline
    room = kv_tokens(found, budget, most, FREE_SHARE)
    slots = min(most, room / (one.prompt + one.output), one.requests / found.pool.data)
    table = table_of(found, budget, slots, one.prompt + one.output)
    clients = max(slots, 1.0) * found.pool.data
    load = Load(one.prompt, one.output, 1.02 * clients, together=1.0)
    state = steady_state(table, load, Limits(budget, max(slots, 1.0), room))
    rate = float(state.output_tokens_s)
    if one.requests:
        # The last round of requests fills a part of the slots; without the rest its steps are shorter.
        rounds = one.requests / clients
        alone = float(table.cases.decode_seconds(1.0, one.prompt + 0.5 * one.output).item())
        unfilled = np.ceil(rounds - 1e-9) - rounds
        seconds = one.requests * one.output / rate + unfilled * one.output * alone
        rate = one.requests * one.output / seconds
    return {"out_tok_s": rate, "out_tok_s_per_gpu": rate / found.pool.devices}


def group_key(question: TableCase) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key, question.kind
