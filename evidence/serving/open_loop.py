"""Poisson runs with every arrival and length known, replayed one by one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError
from evidence.serving.case import MeasuredRow, ReplicaQuestion, ServingCase
from evidence.serving.collection import Collection
from evidence.serving.served_run import (
    LATENCIES,
    ServedRun,
    result_of,
    scenario_of,
    statistics,
    trace_text,
    traced,
)
from meshwright.validation.rows import SkippedRow
from simulator.serving.workload.traces.base import csv_rows, number

WARM_UP = 1
"""The first request pays for a cold server."""
TIMES = "queued_s", "first_token_s", "last_token_s"
NEEDED = ("arrival_s", "input_tokens", "output_tokens", *TIMES)


@dataclass(frozen=True)
class OpenLoop(ReplicaQuestion):
    """The configuration of one run, and its requests."""

    requests: tuple[tuple[float, ...], ...]
    """Arrival, s; prompt, output and cached tokens; when queued, at the first and at the last token, s."""
    sequences: float
    budget: float
    share: float

    def run(self) -> ServedRun:
        """See `Question`."""
        arrivals, prompts, outputs, hits, *_ = zip(*self.requests, strict=True)
        options = {
            "max_sequences": int(self.sequences),
            "token_budget": int(self.budget),
            "memory_share": self.share,
            "max_context": 1 << max(map(int.__add__, prompts, outputs)).bit_length(),
        }
        scenario = scenario_of(self.serving, traced(len(self.requests)), options=options)
        return ServedRun(scenario, trace_text(arrivals, prompts, outputs, hits))


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
    arrival, _, outputs, _, queued, first, last = np.array(case.question.requests, dtype=float).T
    return {"measured": columns(first - queued, (last - first) / np.maximum(outputs - 1, 1), last - arrival)}


def figures(run: ServedRun) -> dict[str, float]:
    """Predicted figures of a run."""
    records = result_of(run).records.columns()
    arrival, queued, first, last = (records[f"{name}_s"] for name in ("arrival", "queued", "first", "last"))
    tpot = (last - first) / np.maximum(records["output"] - 1, 1)
    return columns(first - arrival - (queued - arrival), tpot, last - arrival)


def columns(*latencies: np.ndarray) -> dict[str, float]:
    """Figures of a run: TTFT from the engine's queue, the rest from the send; s, in order of arrival."""
    figures: dict[str, float] = {}
    for name, values in zip(LATENCIES, latencies, strict=True):
        stated = statistics(name, values[WARM_UP:])
        figures |= {f"{name}_ms_{key}": stated[f"{name}_ms_{key}"] for key in ("mean", "p50", "p99")}
        each = enumerate(values[WARM_UP:].tolist(), start=WARM_UP)
        figures |= {f"{name}_ms[{index}]": 1e3 * value for index, value in each}
    return figures


def _requests(path: Path) -> list[tuple[float, ...]]:
    """The requests of a run, in order of arrival.

    Raises:
        InputError: a column is missing, a number is wrong (file, line, column), or there are too few rows.
    """
    requests: list[tuple[float, ...]] = []
    for where, cells in csv_rows(path, NEEDED):
        hit = number(cells, "prefix_match_tokens", where, float, 0) if cells.get("prefix_match_tokens") else 0
        lengths = (number(cells, name, where, int, 1) for name in ("input_tokens", "output_tokens"))
        times = (number(cells, name, where, float, 0) for name in TIMES)
        requests.append((number(cells, "arrival_s", where, float, 0), *lengths, int(hit), *times))
        if len(requests) > 1 and requests[-1][0] < requests[-2][0]:
            raise InputError("arrives before the request above it", where)
    if len(requests) <= WARM_UP:
        raise InputError(f"{len(requests)} requests; more than {WARM_UP} are needed", str(path))
    return requests
