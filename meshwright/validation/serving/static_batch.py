"""One batch of an eager engine: prefill and decode step apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.validation.serving.case import EqualRequests, MeasuredRow, batch_arrays, rows_of
from meshwright.validation.serving.collection import Collection
from simulator.serving.steady.batch_run import batch_run
from simulator.serving.steady.kinds import table_of


def question(row: MeasuredRow, collection: Collection) -> EqualRequests:
    """The question of a row."""
    return EqualRequests(collection.replica(row), **collection.values(row))


def predict(questions: Sequence[EqualRequests]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    serving = questions[0].serving
    batch, prompt, output = batch_arrays(questions)
    budget = float(np.max(batch * prompt))
    table = table_of(serving, budget, float(np.max(batch)), float(np.max(prompt + output)))
    run = batch_run(table, batch, prompt, output, budget)
    decoding = table.power.watts(batch, batch, run.kv_tokens, run.decode_step_s, hosts=False)
    prefilling = table.power.watts(batch * prompt, 0.0, batch * prompt, run.prefill_s, hosts=False)
    limit = serving.pool.devices * serving.cluster.device.tdp_watts
    energy = run.prefill_s * prefilling + (run.total_s - run.prefill_s) * decoding
    return rows_of(
        {
            "prefill_ms": 1e3 * run.prefill_s,
            "decode_step_ms": 1e3 * run.decode_step_s,
            "e2e_ms": 1e3 * run.total_s,
            "mean_power_frac_tdp": energy / run.total_s / limit,
        }
    )
