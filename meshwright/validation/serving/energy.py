"""Steady load at a stated batch: ITL, throughput, power and energy (`energy.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from simulator.serving.steady.kinds import table_of

NEEDS = ("avg_batch_size", "avg_output_tokens", "itl_ms_p50", "avg_power_w_all_gpus")
MEASURED = ("itl_ms_p50", "tpot_ms_mean", "out_tok_s", "avg_power_w_all_gpus", "j_per_output_token")

PROMPTS = {
    "lm-arena-chat": 150.0,
    "gpqa": 300.0,
    "image-chat": 500.0,
    "sourcegraph-fim": 1000.0,
    "sharegpt-code": 300.0,
}
"""Mean prompt tokens by task, which the source does not state (assumed)."""
OTHER_PROMPT = 300.0
VERSION = "0.4.2"
"""Of rows without a version: the source's scripts name vLLM 0.4.2 and 0.5.4."""
RUN_BATCHES = 530.0
"""Tokens a second of those rows are below batch over TPOT by 1 + batch / 530 (median over 112 rows, from
measured columns alone): runs of a fixed number of requests, whose start and end do not fill the batch."""


@dataclass(frozen=True)
class Energy:
    """The configuration of one row."""

    serving: Setup
    batch: float
    prompt: float
    output: float
    whole_run: bool = False
    """Whether throughput counts the start and the end of the run."""


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    gpus, tp, dp, ep = row.count("n_gpus"), row.count("tp"), row.count("dp"), row.count("ep")
    # With expert parallelism the source's tp is that of experts: attention is cut over all ranks of a copy.
    tensor = max(gpus // dp, 1) if ep > 1 else tp
    pool = {"tensor": tensor, "data": dp, "expert": ep if ep == gpus else 1, "pipeline": row.count("pp")}
    precision = row.text("weight_precision", "bf16")
    engine = row.text("engine", "vllm")
    found = setup(row, engine, row.text("engine_version", VERSION), pool, precision)
    if tensor * dp != gpus and tensor * row.count("pp") * dp != gpus:
        raise SkippedRow(f"degrees ({tp} x {dp}) do not give {gpus} GPUs")
    prompt = row.number("input_tokens") or PROMPTS.get(row.text("task"), OTHER_PROMPT)
    whole = not row.text("engine_version")
    question = Energy(found, row.need("avg_batch_size"), prompt, row.need("avg_output_tokens"), whole)
    measured = row.measured(*MEASURED)
    flagged = bool(row.text("flag")) and row.text("flag") != "power_derived"
    return ServingCase(
        row.text("case_id"), file, found.engine.name, row.text("gpu"), measured, flagged, "", question
    )


def predict(questions: Sequence[Energy]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    found = questions[0].serving
    batch, prompt, output = np.array([(one.batch, one.prompt, one.output) for one in questions]).T
    each = batch / found.pool.data
    budget = found.engine.token_budget(found.cluster.device)
    table = table_of(found, budget, float(np.max(each)) + 1, float(np.max(prompt + output)))
    keys = prompt + 0.5 * output
    step = table.cases.decode_seconds(each, keys)
    # Each request that ends is followed by another's prompt; prompts of one decode step share a step.
    arriving = each / output
    most = np.maximum(np.floor(budget / prompt), 1.0)
    together = np.clip(arriving, 1.0, most)
    alone = found.engine.scheduler.value == "prefill-first"
    beside = np.zeros_like(each) if alone else each
    prefill = table.cases.mixed_seconds(np.minimum(together * prompt, budget), 0.0, beside, keys, together)
    # Data-parallel ranks step together: a prompt on any of them makes the step of all longer.
    chance = np.clip(-np.expm1(-arriving), 1e-9, 1.0 - 1e-9)
    met = -np.expm1(found.pool.data * np.log1p(-chance)) / chance
    gap = step + (prefill - (0.0 if alone else step)) * arriving / together * met
    whole = np.array([one.whole_run for one in questions])
    rate = batch / gap / np.where(whole, 1.0 + batch / RUN_BATCHES, 1.0)
    tokens = each * found.pool.data * (1.0 + prompt / output)
    watts = table.power.watts(tokens, batch, batch * keys, gap, hosts=False)
    columns = {
        "itl_ms_p50": 1e3 * step,
        "tpot_ms_mean": 1e3 * gap,
        "out_tok_s": rate,
        "avg_power_w_all_gpus": watts,
        "j_per_output_token": watts / rate,
    }
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(questions))]


def group_key(question: Energy) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key
