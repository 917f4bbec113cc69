"""One batch end to end through an engine's offline interface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.validation.serving.case import EqualRequests, MeasuredRow, batch_arrays, rows_of
from meshwright.validation.serving.collection import Collection
from simulator.serving.steady.batch_run import batch_run
from simulator.serving.steady.kinds import kv_tokens, table_of


def question(row: MeasuredRow, collection: Collection) -> EqualRequests:
    """The question of a row."""
    return EqualRequests(collection.replica(row, _degrees(row)), **collection.values(row))


def _degrees(row: MeasuredRow) -> dict[str, int]:
    gpus, words = row.count("n_gpus", row.count("tp")), row.text("parallelism").lower()
    if "hybrid" in words or "hybird" in words:
        return {"tensor": max(gpus // 2, 1), "pipeline": min(gpus, 2)}
    if "pipeline" in words or words == "pp" or "llama" in row.text("engine").lower():
        # llama.cpp splits layers over devices, which work in turn.
        return {"pipeline": gpus}
    return {"tensor": row.count("tp", gpus)}


def predict(questions: Sequence[EqualRequests]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    serving = questions[0].serving
    engine, device = serving.engine, serving.cluster.device
    batch, prompt, output = batch_arrays(questions)
    budget = max(engine.token_budget(device), float(np.max(prompt)))
    most = min(float(np.max(batch)), engine.sequence_limit(device))
    table = table_of(serving, budget, most, float(np.max(prompt + output)))
    slots = np.minimum(kv_tokens(serving, budget, most) / (prompt + output), most)
    run = batch_run(table, batch, prompt, output, budget, slots)
    seconds = run.total_s + engine.first_token_s.value
    together = np.minimum(batch, np.maximum(slots, 1.0))
    return rows_of(
        {
            "latency_s": seconds,
            "total_tok_s": batch * (prompt + output) / seconds,
            "ttft_s": run.prefill_s + engine.first_token_s.value,
            "mean_power_w": table.power.watts(
                together, together, run.kv_tokens, run.decode_step_s, hosts=False
            ),
        }
    )
