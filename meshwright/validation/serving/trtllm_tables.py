"""TensorRT-LLM's published tables: maximum throughput and first-token latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.validation.serving.case import MeasuredRow, Question, Setup, batch_arrays, rows_of
from meshwright.validation.serving.clients import generated, run, scenario_of
from meshwright.validation.serving.collection import Collection
from meshwright.validation.serving.trtllm_bench import BenchLimits, bench_limits
from simulator.serving.result import ServingResult
from simulator.serving.steady.batch_run import batch_run
from simulator.serving.steady.kinds import kv_tokens, table_of
from simulator.serving.steady.steady import Limits, Load, steady_state

FREE_SHARE = 0.92
"""Middle of the stated KV fractions, 0.90 to 0.95."""


@dataclass(frozen=True)
class TableCase(Question):
    """The configuration of one row."""

    kind: str
    batch: float
    requests: float
    prompt: float
    output: float
    limits: BenchLimits | None
    """Of the benchmark; None: the engine's defaults."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Rows with equal keys are predicted in one call."""
        return self.serving.key, self.kind


def question(row: MeasuredRow, collection: Collection) -> TableCase:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    degrees = None
    if "attention data parallelism" in row.text("notes"):
        degrees = {"data": row.count("tp"), "expert": row.count("tp"), "pipeline": row.count("pp")}
    serving = collection.replica(row, degrees)
    fp4 = row.text("weight_precision") == "fp4"
    if fp4 and not serving.pool.kv and serving.cluster.device.generation == "blackwell":
        # The page states fp8 for MXFP4 checkpoints, which carry no scales, and "auto" on Hopper.
        serving = serving.with_pool(kv="fp8")
    at_most = row.text("kind") == "max_throughput"  # as many requests together as memory holds
    values, limits = collection.values(row), None
    if at_most and serving.engine.graph_sizes.value:
        limits = bench_limits(serving, values["prompt"], values["output"], FREE_SHARE)
        serving = serving.with_pool(graph_sizes=limits.graphs)
    batch = (row.number("batch") or 0.0) if at_most else row.need("batch")
    requests = row.number("num_requests") or 0.0
    return TableCase(serving, row.text("kind"), batch, requests, limits=limits, **values)


def scenario(row: TableCase) -> dict[str, Any] | None:
    """The run of `trtllm-bench throughput` as a serving scenario: all requests at once.

    None of other rows, and of attention ranks in a pipeline, which the event engine has not.
    """
    pool = row.serving.pool
    if row.limits is None or not row.requests or (pool.data > 1 and pool.pipeline > 1):
        return None
    options = {
        "prefix_caching": False,
        "token_budget": row.limits.tokens,
        "max_sequences": row.limits.batch * pool.pipeline,
        "max_context": round(row.prompt + row.output),
        "memory_share": FREE_SHARE,
    }
    workload = generated(round(row.requests), {"kind": "burst"}, round(row.prompt), round(row.output))
    return scenario_of(row.serving, workload, options=options)


def predict(questions: Sequence[TableCase]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    runs = [data for data in map(scenario, questions) if data is not None]
    if len(runs) < len(questions):
        return predict_steady(questions)
    return [_rates(questions[0].serving, _rate(run(data))) for data in runs]


def _rates(serving: Setup, out_tok_s: float) -> dict[str, float]:
    return {"out_tok_s": out_tok_s, "out_tok_s_per_gpu": out_tok_s / serving.pool.devices}


def _rate(result: ServingResult) -> float:
    """Tokens out a second from the first arrival to the last token."""
    columns = result.records.columns()
    return float(columns["output"].sum() / columns["last_s"].max())


def predict_steady(questions: Sequence[TableCase]) -> list[dict[str, float]]:
    """As `predict`, from steady states."""
    serving = questions[0].serving
    if questions[0].kind == "max_throughput":
        return [_maximum(serving, row) for row in questions]
    batch, prompt, output = batch_arrays(questions)
    budget = max(serving.engine.token_budget(serving.cluster.device), float(np.max(prompt)))
    table = table_of(serving, budget, float(np.max(batch)), float(np.max(prompt + output)))
    together = batch_run(table, batch, prompt, output, budget)
    rate = batch * output / together.total_s
    return rows_of(
        {
            "out_tok_s": rate,
            "out_tok_s_per_gpu": rate / serving.pool.devices,
            "ttft_ms": 1e3 * (together.prefill_s + serving.engine.first_token_s.value),
        }
    )


def _maximum(serving: Setup, row: TableCase) -> dict[str, float]:
    """All requests queued at once: as many run as memory holds."""
    device = serving.cluster.device
    budget, most = max(serving.engine.token_budget(device), row.prompt), serving.engine.sequence_limit(device)
    if row.limits is not None:
        budget, most = row.limits.tokens, row.limits.batch * serving.pool.pipeline
    room = kv_tokens(serving, budget, most, FREE_SHARE)
    slots = min(most, room / (row.prompt + row.output), row.requests / serving.pool.data)
    table = table_of(serving, budget, slots, row.prompt + row.output)
    clients = max(slots, 1.0) * serving.pool.data
    load = Load(row.prompt, row.output, 1.02 * clients, together=1.0)
    state = steady_state(table, load, Limits(budget, max(slots, 1.0), room))
    rate = float(state.output_tokens_s)
    if row.requests:
        # The last round of requests fills a part of the slots; without the rest its steps are shorter.
        rounds = row.requests / clients
        alone = float(table.cases.decode_seconds(1.0, row.prompt + 0.5 * row.output).item())
        unfilled = np.ceil(rounds - 1e-9) - rounds
        seconds = row.requests * row.output / rate + unfilled * row.output * alone
        rate = row.requests * row.output / seconds
    return _rates(serving, rate)
