"""One batch end to end through an engine's offline interface (`offline_batch.csv`, `offline_extra.csv`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from simulator.serving.steady.batch_run import batch_run
from simulator.serving.steady.kinds import kv_tokens, table_of

NEEDS = ("engine", "latency_s", "batch", "input_tokens", "output_tokens")
MEASURED = ("latency_s", "total_tok_s", "ttft_s", "mean_power_w")

VERSIONS = {"vllm": "0.6.1", "trtllm": "0.11.0", "tensorrtllm": "0.11.0"}
"""Of engines whose rows state none: those that the source's scripts install (README of the data)."""


@dataclass(frozen=True)
class Offline:
    """The configuration of one row."""

    serving: Setup
    batch: float
    prompt: float
    output: float


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run, or has a draft model, whose acceptance is not stated.
    """
    if row.text("draft_model", "None") != "None":
        raise SkippedRow("acceptance of the draft model not stated")
    engine = row.text("engine")
    version = row.text("engine_version") or VERSIONS.get(re.sub(r"[^a-z]", "", engine.lower()), "")
    pool = _degrees(row, engine)
    found = setup(row, engine, version, pool, row.text("weight_precision", "fp16"))
    question = Offline(found, row.need("batch"), row.need("input_tokens"), row.need("output_tokens"))
    measured = row.measured(*MEASURED)
    if "llama" in engine.lower():
        measured.pop("total_tok_s", None)
    name = row.text("case_id") or row.where.split("/")[-1].replace(": line ", ":")
    flag = row.text("flag")
    if flag == "throughput_vs_latency_off":
        # The throughput column contradicts the latency.
        measured.pop("total_tok_s", None)
    configuration = f"{found.key} {question.batch} {question.prompt} {question.output} {row.text('kind')}"
    return ServingCase(
        name, file, found.engine.name, row.text("gpu"), measured, bool(flag), configuration, question
    )


def _degrees(row: MeasuredRow, engine: str) -> dict[str, int]:
    gpus = row.count("n_gpus", row.count("tp"))
    words = row.text("parallelism").lower()
    if "hybrid" in words or "hybird" in words:
        return {"tensor": max(gpus // 2, 1), "pipeline": min(gpus, 2)}
    if "pipeline" in words or words == "pp" or "llama" in engine.lower():
        # llama.cpp splits layers over devices, which work in turn.
        return {"pipeline": gpus}
    return {"tensor": row.count("tp", gpus)}


def predict(questions: Sequence[Offline]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    found = questions[0].serving
    batch, prompt, output = np.array([(one.batch, one.prompt, one.output) for one in questions]).T
    device = found.cluster.device
    budget = max(found.engine.token_budget(device), float(np.max(prompt)))
    most = min(float(np.max(batch)), found.engine.sequence_limit(device))
    table = table_of(found, budget, most, float(np.max(prompt + output)))
    slots = np.minimum(kv_tokens(found, budget, most) / (prompt + output), most)
    run = batch_run(table, batch, prompt, output, budget, slots)
    fixed = found.engine.first_token_s.value
    seconds = run.total_s + fixed
    together = np.minimum(batch, np.maximum(slots, 1.0))
    decoding = table.power.watts(together, together, run.kv_tokens, run.decode_step_s, hosts=False)
    columns = {
        "latency_s": seconds,
        "total_tok_s": batch * (prompt + output) / seconds,
        "ttft_s": run.prefill_s + fixed,
        "mean_power_w": decoding,
    }
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(questions))]


def group_key(question: Offline) -> tuple[Any, ...]:
    """Rows with equal keys are predicted in one call."""
    return question.serving.key
