"""Poisson runs with every arrival and length known, replayed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodels.errors import InputError
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, Question, ServingCase
from meshwright.validation.serving.clients import (
    LATENCIES,
    latencies,
    run_trace,
    scenario_of,
    statistics,
    trace_text,
    traced,
)
from meshwright.validation.serving.collection import Collection
from simulator.serving.workload.traces.base import csv_rows, number

WARM_UP = 1
"""The first request pays for a cold server."""


@dataclass(frozen=True)
class OpenLoop(Question):
    """The configuration of one run, and its requests."""

    requests: tuple[TimedRequest, ...]
    sequences: float
    budget: float
    share: float


def question(row: MeasuredRow, collection: Collection) -> OpenLoop:
    """The question of a run.

    Raises:
        SkippedRow: the row leaves open what was run, or its requests are not there.
    """
    folder = Path(row.where.rpartition(": line")[0]).parent
    candidates = folder / Path(row.text("file")).name, folder.parent / row.text("file")
    path = next((file for file in candidates if file.is_file()), None)
    if path is None:
        raise SkippedRow(f"requests ({row.text('file')}) not found")
    requests, share = tuple(_requests(path)), row.number("gpu_memory_utilization") or 0.9
    return OpenLoop(collection.replica(row), requests, share=share, **collection.values(row))


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """Measured figures of a run, from its requests."""
    requests: Sequence[TimedRequest] = case.question.requests
    arrival, _, outputs, _, queued, first, last = np.array(requests, dtype=float).T
    tpot = (last - first) / np.maximum(outputs - 1, 1)
    return {"measured": columns(first - queued, tpot, last - arrival)}


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
    requests: list[TimedRequest] = []
    for where, cells in csv_rows(path, NEEDED):
        hit = number(cells, "prefix_match_tokens", where, float, 0) if cells.get("prefix_match_tokens") else 0
        requests.append(
            TimedRequest(
                number(cells, "arrival_s", where, float, 0),
                number(cells, "input_tokens", where, int, 1),
                number(cells, "output_tokens", where, int, 1),
                int(hit),
                *(number(cells, name, where, float, 0) for name in NEEDED[3:]),
            )
        )
        if len(requests) > 1 and requests[-1].arrival_s < requests[-2].arrival_s:
            raise InputError("arrives before the request above it", where)
    if len(requests) <= WARM_UP:
        raise InputError(f"{len(requests)} requests; more than {WARM_UP} are needed", str(path))
    return requests


def columns(ttft: np.ndarray, tpot: np.ndarray, e2e: np.ndarray) -> dict[str, float]:
    """Figures of a run: TTFT from the engine's queue, the rest from the send; s, in order of arrival."""
    figures: dict[str, float] = {}
    for name, values in zip(LATENCIES, (ttft, tpot, e2e), strict=True):
        values = values[WARM_UP:]
        figures |= statistics(f"{name}_ms", values, percents=(50, 99))
        for index, value in enumerate(values, start=WARM_UP):
            figures[f"{name}_ms[{index}]"] = 1e3 * float(value)
    return figures


def scenario(run: OpenLoop) -> dict[str, Any]:
    """The run as a serving scenario that reads its trace."""
    longest = max(request.prompt + request.output for request in run.requests)
    options = {
        "max_sequences": int(run.sequences),
        "token_budget": int(run.budget),
        "memory_share": run.share,
        "max_context": 1 << longest.bit_length(),
    }
    return scenario_of(run.serving, traced(len(run.requests)), options=options)


def trace(run: OpenLoop) -> str:
    """The requests of the run."""
    return trace_text(*zip(*(request[:4] for request in run.requests), strict=True))


def predict(questions: Sequence[OpenLoop]) -> list[dict[str, float]]:
    """Predicted columns of runs."""
    return [_columns(run) for run in questions]


def _columns(run: OpenLoop) -> dict[str, float]:
    result = run_trace(scenario(run), trace(run))
    values, records = latencies(result), result.records.columns()
    queued = records["queued_s"] - records["arrival_s"]
    return columns(values["ttft"] - queued, values["tpot"], values["e2e"])
