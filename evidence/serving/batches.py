"""One batch of equal requests end to end: offline interfaces, and engines that a source does not name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evidence.serving.case import EqualRequests, MeasuredRow, batch_arrays, rows_of
from evidence.serving.collection import Collection
from simulator.serving.steady.batch_run import batch_run
from simulator.serving.steady.kinds import kv_tokens, table_of


@dataclass(frozen=True)
class OfflineBatch(EqualRequests):
    """The configuration of one row."""

    limited: bool
    """Whether the engine's limits cut the batch: memory, sequences and the token budget."""


def question(row: MeasuredRow, collection: Collection) -> OfflineBatch:
    """The question of a row."""
    limited = collection.engine != "static"
    serving = collection.replica(row, _degrees(row) if limited else None)
    return OfflineBatch(serving, limited=limited, **collection.values(row))


def _degrees(row: MeasuredRow) -> dict[str, int]:
    gpus, words = row.count("n_gpus", row.count("tp")), row.text("parallelism").lower()
    if "hybrid" in words or "hybird" in words:
        return {"tensor": max(gpus // 2, 1), "pipeline": min(gpus, 2)}
    if "pipeline" in words or words == "pp" or "llama" in row.text("engine").lower():
        # llama.cpp splits layers over devices, which work in turn.
        return {"pipeline": gpus}
    return {"tensor": row.count("tp", gpus)}


def predict(questions: Sequence[OfflineBatch]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    serving, limited = questions[0].serving, questions[0].limited
    engine, device = serving.engine, serving.cluster.device
    batch, prompt, output = batch_arrays(questions)
    budget, sequences, context = (
        float(np.max(batch * prompt)),
        float(np.max(batch)),
        float(np.max(prompt + output)),
    )
    slots = np.full_like(batch, np.inf)
    if limited:
        budget = max(engine.token_budget(device), float(np.max(prompt)))
        sequences = min(sequences, engine.sequence_limit(device))
        slots = np.minimum(kv_tokens(serving, budget, sequences) / (prompt + output), sequences)
    table = table_of(serving, budget, sequences, context)
    run = batch_run(table, batch, prompt, output, budget, slots)
    first_s = engine.first_token_s.value if limited else 0.0
    together = np.minimum(batch, np.maximum(slots, 1.0))
    decoding = table.power.watts(together, together, run.kv_tokens, run.decode_step_s, hosts=False)
    prefilling = table.power.watts(batch * prompt, 0.0, batch * prompt, run.prefill_s, hosts=False)
    joules = run.prefill_s * prefilling + (run.total_s - run.prefill_s) * decoding
    seconds = run.total_s + first_s
    return rows_of(
        {
            "latency_s": seconds,
            "e2e_ms": 1e3 * seconds,
            "total_tok_s": batch * (prompt + output) / seconds,
            "ttft_s": run.prefill_s + first_s,
            "prefill_ms": 1e3 * run.prefill_s,
            "decode_step_ms": 1e3 * run.decode_step_s,
            "mean_power_w": decoding,
            "mean_power_frac_tdp": joules / run.total_s / (serving.pool.devices * device.tdp_watts),
        }
    )
