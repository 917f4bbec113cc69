"""Poisson runs with every arrival and length known, replayed one by one (`open_loop/meta.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodels.errors import InputError
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.clients import (
    LATENCIES,
    cluster_key,
    latencies,
    pool_keys,
    run_trace,
    trace_text,
    traced,
)
from simulator.serving.workload.traces.base import csv_rows, number

NEEDS = ("run", "file", "max_num_seqs", "max_num_batched_tokens", "arrival")
WARM_UP = 1
"""The first request pays for a cold server."""


@dataclass(frozen=True)
class OpenLoop:
    """The configuration of one run, and its requests."""

    serving: Setup
    arrivals: tuple[float, ...]
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    hits: tuple[int, ...]
    """Prompt tokens that an earlier request shares."""
    sequences: int
    budget: int
    share: float


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one run.

    Raises:
        Skipped: the row leaves open what was run, or its requests are not there.
    """
    folder = Path(row.where.rpartition(": line")[0]).parent
    found = [folder / Path(row.text("file")).name, folder.parent / row.text("file")]
    path = next((one for one in found if one.is_file()), None)
    if path is None:
        raise SkippedRow(f"requests ({row.text('file')}) not found")
    tp, dp = row.count("tp"), row.count("dp")
    pool = {"tensor": tp, "data": dp, "expert": row.count("ep") if row.count("ep") > 1 else 1}
    serving = setup(row, row.text("engine"), row.text("engine_version"), pool, row.text("weight_precision"))
    timed = _requests(path)
    question = OpenLoop(
        serving=serving,
        arrivals=tuple(one.arrival_s for one in timed),
        prompts=tuple(one.prompt for one in timed),
        outputs=tuple(one.output for one in timed),
        hits=tuple(one.hit for one in timed),
        sequences=int(row.need("max_num_seqs")),
        budget=int(row.need("max_num_batched_tokens")),
        share=row.number("gpu_memory_utilization") or 0.9,
    )
    queued, first, last, arrival, outputs = np.array(
        [(one.queued_s, one.first_s, one.last_s, one.arrival_s, one.output) for one in timed]
    ).T
    tpot = (last - first) / np.maximum(outputs - 1, 1)
    measured = columns(first - queued, tpot, last - arrival)
    return ServingCase(
        row.text("run"), file, serving.engine.name, row.text("gpu"), measured, False, "", question
    )


class TimedRequest(NamedTuple):
    """One measured request; s from the start of the run."""

    arrival_s: float
    prompt: int
    output: int
    hit: int
    """Prompt tokens found in the prefix cache."""
    queued_s: float
    first_s: float
    last_s: float


NEEDED = ("arrival_s", "input_tokens", "output_tokens", "queued_s", "first_token_s", "last_token_s")


def _requests(path: Path) -> list[TimedRequest]:
    """The requests of a run, in order of arrival.

    Raises:
        InputError: a column is missing, a number is wrong (file, line, column), or there are too few rows.
    """
    found = []
    for where, cells in csv_rows(path, NEEDED):
        hit = number(cells, "prefix_match_tokens", where, float, 0) if cells.get("prefix_match_tokens") else 0
        found.append(
            TimedRequest(
                number(cells, "arrival_s", where, float, 0),
                number(cells, "input_tokens", where, int, 1),
                number(cells, "output_tokens", where, int, 1),
                int(hit),
                *(number(cells, name, where, float, 0) for name in NEEDED[3:]),
            )
        )
        if len(found) > 1 and found[-1].arrival_s < found[-2].arrival_s:
            raise InputError("arrives before the request above it", where)
    if len(found) <= WARM_UP:
        raise InputError(f"{len(found)} requests; more than {WARM_UP} are needed", str(path))
    return found


def columns(ttft: np.ndarray, tpot: np.ndarray, e2e: np.ndarray) -> dict[str, float]:
    """Figures of a run: TTFT from the engine's queue, the rest from the send; s, in order of arrival."""
    figures = {}
    for name, values in zip(LATENCIES, (ttft, tpot, e2e), strict=True):
        values = values[WARM_UP:]
        figures[f"{name}_ms_mean"] = 1e3 * float(values.mean())
        for percent in (50, 99):
            figures[f"{name}_ms_p{percent}"] = 1e3 * float(np.percentile(values, percent))
        for index, value in enumerate(values, start=WARM_UP):
            figures[f"{name}_ms[{index}]"] = 1e3 * float(value)
    return figures


def scenario(one: OpenLoop) -> dict[str, Any]:
    """The run as a serving scenario that reads its trace."""
    longest = max(prompt + output for prompt, output in zip(one.prompts, one.outputs, strict=True))
    options = {
        "max_sequences": one.sequences,
        "token_budget": one.budget,
        "memory_share": one.share,
        "max_context": 1 << longest.bit_length(),
    }
    return {
        "model": one.serving.model.name,
        "cluster": cluster_key(one.serving),
        "workload": traced(len(one.arrivals)),
        "deployment": {**pool_keys(one.serving), "options": options},
    }


def trace(one: OpenLoop) -> str:
    """The requests of the run."""
    return trace_text(one.arrivals, one.prompts, one.outputs, one.hits)


def predict(questions: Sequence[OpenLoop]) -> list[dict[str, float]]:
    """Predicted columns of runs."""
    return [_one(question) for question in questions]


def _one(one: OpenLoop) -> dict[str, float]:
    result = run_trace(scenario(one), trace(one))
    values = latencies(result)
    queued = result.records.columns()["queued_s"] - result.records.columns()["arrival_s"]
    return columns(values["ttft"] - queued, values["tpot"], values["e2e"])


def group_key(question: OpenLoop) -> tuple[Any, ...]:
    """Rows with equal keys are predicted in one call."""
    return question.serving.key
