"""One batch of an eager engine: prefill and decode step apart (`static_batch.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from simulator.serving.steady.batch_run import batch_run
from simulator.serving.steady.kinds import table_of

NEEDS = ("prefill_ms", "decode_step_ms", "batch", "input_tokens", "output_tokens")
MEASURED = ("prefill_ms", "decode_step_ms", "e2e_ms", "mean_power_frac_tdp")
ENGINE = "static"
"""The engine is not named in the source; its steps are those of an eager one."""


@dataclass(frozen=True)
class StaticBatch:
    """The configuration of one row."""

    serving: Setup
    batch: float
    prompt: float
    output: float


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    found = setup(
        row, row.text("engine", ENGINE), "", {"tensor": row.count("tp")}, row.text("weight_precision")
    )
    question = StaticBatch(found, row.need("batch"), row.need("input_tokens"), row.need("output_tokens"))
    configuration = f"{found.key} {question.batch} {question.prompt} {question.output}"
    measured = row.measured(*MEASURED)
    flag = row.text("flag")
    if "e2e_not" in flag:
        measured.pop("e2e_ms", None)
        flag = flag.replace("e2e_not_prefill_plus_decode", "").strip()
    return ServingCase(
        row.text("case_id"),
        file,
        found.engine.name,
        row.text("gpu"),
        measured,
        bool(flag),
        configuration,
        question,
    )


def predict(questions: Sequence[StaticBatch]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    found = questions[0].serving
    batch, prompt, output = np.array([(one.batch, one.prompt, one.output) for one in questions]).T
    budget = float(np.max(batch * prompt))
    table = table_of(found, budget, float(np.max(batch)), float(np.max(prompt + output)))
    run = batch_run(table, batch, prompt, output, budget)
    decoding = table.power.watts(batch, batch, run.kv_tokens, run.decode_step_s, hosts=False)
    prefilling = table.power.watts(batch * prompt, 0.0, batch * prompt, run.prefill_s, hosts=False)
    energy = run.prefill_s * prefilling + (run.total_s - run.prefill_s) * decoding
    limit = found.pool.devices * found.cluster.device.tdp_watts
    columns = {
        "prefill_ms": 1e3 * run.prefill_s,
        "decode_step_ms": 1e3 * run.decode_step_s,
        "e2e_ms": 1e3 * run.total_s,
        "mean_power_frac_tdp": energy / run.total_s / limit,
    }
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(questions))]


def group_key(question: StaticBatch) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key
