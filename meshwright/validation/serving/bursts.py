"""All requests at t = 0: a benchmark client at infinite rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, Question, degrees
from meshwright.validation.serving.clients import (
    LATENCIES,
    client_defaults,
    generated,
    latencies,
    run,
    scenario_of,
    statistics,
)
from meshwright.validation.serving.collection import Collection
from meshwright.validation.serving.stated import Stated, lengths, read_stated


@dataclass(frozen=True)
class BurstRun(Question):
    """The configuration of one row."""

    prompt: float
    output: float
    stated: Stated


def question(row: MeasuredRow, collection: Collection) -> BurstRun:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    tp, dp, pp = row.count("tp"), row.count("dp"), row.count("pp")
    gpus = row.count("n_gpus", tp * pp)
    serving = collection.replica(row, degrees(tp, dp, row.count("ep"), pp, gpus))
    if gpus != serving.pool.devices:
        raise SkippedRow(f"degrees do not give {gpus} GPUs")
    row.need("num_prompts")
    return BurstRun(serving, stated=read_stated(row), **collection.values(row))


def scenario(row: BurstRun) -> dict[str, Any]:
    """The run as a serving scenario."""
    low, stated = client_defaults().unstated_from.value, row.stated
    prompt, output = (lengths(mean, low, stated.varied) for mean in (row.prompt, row.output))
    workload = generated(stated.requests, {"kind": "burst"}, prompt, output)
    keys: dict[str, Any] = {"options": {"prefix_caching": False, **stated.options}}
    if stated.speculation:
        keys["speculation"] = dict(stated.speculation)
    return scenario_of(row.serving, workload, **keys)


def predict(questions: Sequence[BurstRun]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    return [_columns(row) for row in questions]


def _columns(row: BurstRun) -> dict[str, float]:
    result = run(scenario(row))
    columns, seconds = result.records.columns(), latencies(result)
    span, gpus = float(columns["last_s"].max()), row.serving.pool.devices
    rates = {"in": columns["prompt"].sum() / span / gpus, "out": columns["output"].sum() / span / gpus}
    figures = {f"{name}_tok_s_per_gpu": float(rate) for name, rate in rates.items()}
    figures |= {"total_tok_s_per_gpu": float(sum(rates.values())), "req_s": len(columns["last_s"]) / span}
    for name in LATENCIES:
        figures |= statistics(f"{name}_ms", seconds[name])
    return figures
