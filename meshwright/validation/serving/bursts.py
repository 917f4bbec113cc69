"""All requests at t = 0: a benchmark client at infinite rate (`burst_runs.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.clients import (
    LATENCIES,
    client_defaults,
    cluster_key,
    latencies,
    pool_keys,
    run,
)
from meshwright.validation.serving.closed_loop import MEASURED, degrees
from meshwright.validation.serving.stated import Stated, lengths, read_stated

NEEDS = ("harness", "isl_tokens", "osl_tokens", "num_prompts", "request_rate")


@dataclass(frozen=True)
class BurstRun:
    """The configuration of one row."""

    serving: Setup
    prompt: float
    output: float
    stated: Stated


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        SkippedRow: the row leaves open what was run, or requests did not all come at once.
    """
    if row.text("request_rate") != "inf":
        raise SkippedRow("requests come at a rate")
    if not row.text("engine"):
        raise SkippedRow("engine not stated")
    tp, dp, pp = row.count("tp"), row.count("dp"), row.count("pp")
    gpus = row.count("n_gpus", tp * pp)
    pool = degrees(tp, dp, row.count("ep"), pp, gpus)
    serving = setup(row, row.text("engine"), row.text("engine_version"), pool, row.text("weight_precision"))
    if gpus != serving.pool.devices:
        raise SkippedRow(f"degrees do not give {gpus} GPUs")
    row.need("num_prompts")
    question = BurstRun(serving, row.need("isl_tokens"), row.need("osl_tokens"), read_stated(row))
    return ServingCase(
        row.text("case_id"),
        file,
        serving.engine.name,
        row.text("gpu"),
        row.measured(*MEASURED),
        bool(row.text("flag")),
        row.text("repeat_group"),
        question,
    )


def scenario(one: BurstRun) -> dict[str, Any]:
    """The run as a serving scenario."""
    low, stated = client_defaults().unstated_from.value, one.stated
    deployment = {**pool_keys(one.serving), "options": {"prefix_caching": False, **stated.options}}
    if stated.speculation:
        deployment["speculation"] = dict(stated.speculation)
    return {
        "model": one.serving.model.name,
        "cluster": cluster_key(one.serving),
        "workload": {
            "kind": "serving",
            "requests": stated.requests,
            "arrivals": {"kind": "burst"},
            "input": lengths(one.prompt, low, stated.varied),
            "output": lengths(one.output, low, stated.varied),
        },
        "deployment": deployment,
    }


def predict(questions: Sequence[BurstRun]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    return [_one(question) for question in questions]


def _one(one: BurstRun) -> dict[str, float]:
    result = run(scenario(one))
    columns, values = result.records.columns(), latencies(result)
    span, gpus = float(columns["last_s"].max()), one.serving.pool.devices
    rates = {"in": columns["prompt"].sum() / span / gpus, "out": columns["output"].sum() / span / gpus}
    figures = {f"{name}_tok_s_per_gpu": float(rate) for name, rate in rates.items()}
    figures |= {"total_tok_s_per_gpu": float(sum(rates.values())), "req_s": len(columns["last_s"]) / span}
    for name in LATENCIES:
        figures[f"{name}_ms_mean"] = 1e3 * float(values[name].mean())
        for percent in (50, 90, 99):
            figures[f"{name}_ms_p{percent}"] = 1e3 * float(np.percentile(values[name], percent))
    return figures


def group_key(question: BurstRun) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key
