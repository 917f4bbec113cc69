"""TensorRT-LLM's published tables: maximum throughput and first-token latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidence.serving.case import EqualRequests, MeasuredRow, Setup, batch_arrays, rows_of
from evidence.serving.collection import Collection
from evidence.serving.served_run import ServedRun, figures_of, scenario_of
from evidence.serving.trtllm_bench import BenchLimits, bench_limits
from simulator.serving.steady.batch_run import batch_run
from simulator.serving.steady.kinds import kv_tokens, table_of
from simulator.serving.steady.steady import Limits, Load, steady_state

FREE_SHARE = 0.92
"""Middle of the stated KV fractions, 0.90 to 0.95."""


@dataclass(frozen=True)
class TableCase(EqualRequests):
    """The configuration of one row."""

    kind: str
    requests: float
    limits: BenchLimits | None
    """Of the benchmark; None: the engine's defaults."""

    @property
    def key(self) -> tuple[Any, ...]:  # type: ignore[override]
        """See `Question`."""
        return self.serving.key, self.kind

    def run(self) -> ServedRun | None:
        """The run of `trtllm-bench throughput`: all requests at once.

        None of other rows, and of attention ranks in a pipeline, which the event engine has not.
        """
        pool = self.serving.pool
        if self.limits is None or not self.requests or (pool.data > 1 and pool.pipeline > 1):
            return None
        options = {
            "prefix_caching": False,
            "token_budget": self.limits.tokens,
            "max_sequences": self.limits.batch * pool.pipeline,
            "max_context": round(self.prompt + self.output),
            "memory_share": FREE_SHARE,
        }
        workload = {"requests": round(self.requests), "arrivals": {"kind": "burst"}}
        lengths = {"input": round(self.prompt), "output": round(self.output)}
        return ServedRun(scenario_of(self.serving, {**workload, **lengths}, options=options))


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
    if fp4 and not serving.pool.kv and "blackwell" in serving.cluster.device.generation.lineage:
        # The page states fp8 for MXFP4 checkpoints, which carry no scales, and "auto" on Hopper.
        serving = serving.with_pool(kv="fp8")
    at_most = row.text("kind") == "max_throughput"  # as many requests together as memory holds
    values, limits = collection.values(row), None
    if at_most and serving.engine.graph_sizes.value:
        limits = bench_limits(serving, values["prompt"], values["output"], FREE_SHARE)
        serving = serving.with_pool(graph_sizes=limits.graphs)
    batch = (row.number("batch") or 0.0) if at_most else row.need("batch")
    requests = row.number("num_requests") or 0.0
    return TableCase(serving, batch, kind=row.text("kind"), requests=requests, limits=limits, **values)


def predict(questions: Sequence[TableCase]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    runs = [run for run in (row.run() for row in questions) if run is not None]
    return [figures_of(run) for run in runs] if len(runs) == len(questions) else predict_steady(questions)


def predict_steady(questions: Sequence[TableCase]) -> list[dict[str, float]]:
    """As `predict`, from steady states."""
    serving = questions[0].serving
    if questions[0].kind == "max_throughput":
        rates = np.array([_maximum(serving, row) for row in questions])
        return rows_of({"out_tok_s": rates, "out_tok_s_per_gpu": rates / serving.pool.devices})
    batch, prompt, output = batch_arrays(questions)
    budget = max(serving.engine.token_budget(serving.cluster.device), float(np.max(prompt)))
    table = table_of(serving, budget, float(np.max(batch)), float(np.max(prompt + output)))
    together = batch_run(table, batch, prompt, output, budget)
    rate = batch * output / together.total_s
    first_s = together.prefill_s + serving.engine.first_token_s.value
    columns = {"out_tok_s": rate, "out_tok_s_per_gpu": rate / serving.pool.devices, "ttft_ms": 1e3 * first_s}
    return rows_of(columns)


def _maximum(serving: Setup, row: TableCase) -> float:
    """Tokens a second of requests that are queued at once: as many run as memory holds."""
    device = serving.cluster.device
    budget, sequences = (
        max(serving.engine.token_budget(device), row.prompt),
        serving.engine.sequence_limit(device),
    )
    if row.limits is not None:
        budget, sequences = row.limits.tokens, row.limits.batch * serving.pool.pipeline
    room = kv_tokens(serving, budget, sequences, FREE_SHARE)
    slots = min(sequences, room / (row.prompt + row.output), row.requests / serving.pool.data)
    table = table_of(serving, budget, slots, row.prompt + row.output)
    clients = max(slots, 1.0) * serving.pool.data
    load = Load(row.prompt, row.output, 1.02 * clients, together=1.0)
    rate = float(steady_state(table, load, Limits(budget, max(slots, 1.0), room)).output_tokens_s)
    if not row.requests:
        return rate
    # The last round of requests fills a part of the slots; without the rest its steps are shorter.
    rounds = row.requests / clients
    alone = float(table.cases.decode_seconds(1.0, row.prompt + 0.5 * row.output).item())
    unfilled = np.ceil(rounds - 1e-9) - rounds
    seconds = row.requests * row.output / rate + unfilled * row.output * alone
    return row.requests * row.output / seconds
