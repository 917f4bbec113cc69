"""TensorRT-LLM's published tables: maximum throughput and first-token latency (`trtllm_tables.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
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


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    precision = row.text("weight_precision")
    pool: dict[str, Any] = {"tensor": row.count("tp"), "pipeline": row.count("pp")}
    if "attention data parallelism" in row.text("notes"):
        pool = {"data": row.count("tp"), "expert": row.count("tp"), "pipeline": row.count("pp")}
    # Quantised checkpoints of these tables carry scales for an fp8 cache, which the engine then uses.
    if precision in ("fp8", "fp4") and not row.text("kv_precision"):
        pool["kv"] = "fp8"
    found = setup(row, row.text("engine", "trtllm"), row.text("engine_version", "0.5.0"), pool, precision)
    if found.engine.graph_sizes.value:
        # The page's options list graphs of all batches (perf-overview.md, llm_options.yml: 1 to 8,192).
        captured = {"largest_graph": found.engine.sequence_limit(found.cluster.device)}
        found = replace(found, pool=found.pool.model_copy(update=captured))
    at_most = row.text("kind") == "max_throughput"  # as many requests together as memory holds
    question = TableCase(
        found,
        row.text("kind"),
        (row.number("batch") or 0.0) if at_most else row.need("batch"),
        row.number("num_requests") or 0.0,
        row.need("input_tokens"),
        row.need("output_tokens"),
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


def predict(questions: Sequence[TableCase]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    found = questions[0].serving
    device = found.cluster.device
    if questions[0].kind == "max_throughput":
        return [_maximum(found, one) for one in questions]
    batch, prompt, output = np.array([(one.batch, one.prompt, one.output) for one in questions]).T
    budget = max(found.engine.token_budget(device), float(np.max(prompt)))
    table = table_of(found, budget, float(np.max(batch)), float(np.max(prompt + output)))
    run = batch_run(table, batch, prompt, output, budget)
    rate = batch * output / run.total_s
    return [
        {
            "out_tok_s": float(rate[i]),
            "out_tok_s_per_gpu": float(rate[i]) / found.pool.devices,
            "ttft_ms": 1e3 * float(run.prefill_s[i] + found.engine.first_token_s.value),
        }
        for i in range(len(questions))
    ]


def _maximum(found: Setup, one: TableCase) -> dict[str, float]:
    """All requests queued at once: as many run as memory holds."""
    device = found.cluster.device
    budget = max(found.engine.token_budget(device), one.prompt)
    most = found.engine.sequence_limit(device)
    room = kv_tokens(found, budget, most, FREE_SHARE)
    slots = min(most, room / (one.prompt + one.output), one.requests / found.pool.data)
    table = table_of(found, budget, slots, one.prompt + one.output)
    clients = max(slots, 1.0) * found.pool.data
    state = steady_state(
        table, Load(one.prompt, one.output, 1.02 * clients), Limits(budget, max(slots, 1.0), room)
    )
    rate = float(state.output_tokens_s)
    if one.requests:
        # The last requests leave the batch half empty for the time of one request.
        tail = 0.5 * float(state.decode_s)
        seconds = one.requests * one.output / rate + tail
        rate = one.requests * one.output / seconds
    return {"out_tok_s": rate, "out_tok_s_per_gpu": rate / found.pool.devices}


def group_key(question: TableCase) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key, question.kind
