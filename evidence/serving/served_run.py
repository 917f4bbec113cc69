"""Rows that are runs of serving scenarios: the keys of their scenarios, and the figures of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from core.loading import build, read_mapping
from hwmodels.cluster import clusters
from simulator.serving.engines.figure import Figure
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving
from simulator.serving.steady.kinds import TABLES, ReplicaKind
from simulator.serving.workload.traces import plain

FILE = Path(__file__).with_name("clients.yaml")
TRACE = "requests.csv"
LATENCIES = ("ttft", "tpot", "e2e")
PERCENTS = (50, 90, 99)


class ServedRun(NamedTuple):
    """A scenario whose run is a measured row."""

    scenario: Mapping[str, Any]
    trace: str = ""
    """Text of the trace that it reads."""
    replicas: float = 1.0
    """Measured replicas for each that runs."""
    tokens: tuple[float, float] | None = None
    """Prompt and output tokens of a request as the row states them; None: the mean of those that ran."""
    left_out: float = 0.0
    """First requests that latencies leave out; below 1 a share of all."""


@cache
def client_defaults() -> Mapping[str, float]:
    """What clients do and rows leave out, by name."""
    return {name: build(Figure[float], data, str(FILE)).value for name, data in read_mapping(FILE).items()}


def scenario_of(kind: ReplicaKind, workload: Mapping[str, Any], **deployment: Any) -> dict[str, Any]:
    """A serving scenario of replicas of one kind, with further keys of their deployment.

    A device's name as the cluster means its usual cluster.
    """
    device, pool = kind.cluster.device.name, kind.pool.model_dump(exclude_defaults=True, exclude_none=True)
    return {
        "model": kind.model.name,
        "cluster": device if clusters.resolve(device) is None else kind.cluster.name,
        "workload": {"kind": "serving", **workload},
        "deployment": {**pool, "engine": kind.engine.name, "weights": kind.pool.weights, **deployment},
    }


def traced(requests: int, path: str = TRACE, form: str = "plain", **workload: Any) -> dict[str, Any]:
    """Workload of a scenario that reads a trace."""
    return {"requests": requests, "trace": {"format": form, "path": path}, **workload}


def trace_text(
    arrivals: Sequence[float], prompts: Sequence[int], outputs: Sequence[int], cached: Sequence[int]
) -> str:
    """Requests as a plain trace, whose prompts find tokens in the prefix cache."""
    rows = zip(arrivals, prompts, outputs, cached, strict=True)
    lines = [",".join((*plain.COLUMNS, plain.CACHED))]
    return "\n".join([*lines, *(f"{time!r},{new},{out},{hits}" for time, new, out, hits in rows), ""])


def result_of(run: ServedRun) -> ServingResult:
    """Run a row's scenario as `meshwright simulate` does."""
    with TemporaryDirectory() as folder:
        if run.trace:
            (Path(folder) / run.scenario["workload"]["trace"]["path"]).write_text(run.trace, encoding="utf-8")
        return serve(make_serving(run.scenario, "row", Path(folder), TABLES))


def statistics(name: str, seconds: np.ndarray) -> dict[str, float]:
    """Mean and percentiles of a latency as columns in s and in ms."""
    figures = {"mean": float(seconds.mean())}
    figures |= {f"p{percent}": float(np.percentile(seconds, percent)) for percent in PERCENTS}
    units = ("s", 1.0), ("ms", 1e3)
    return {f"{name}_{unit}_{key}": scale * value for unit, scale in units for key, value in figures.items()}


def figures_of(run: ServedRun) -> dict[str, float]:
    """Figures of a run by the names of columns."""
    result = result_of(run)
    columns, pool = result.records.columns(), result.setting.pools[0]
    arrival, first, last = columns["arrival_s"], columns["first_s"], columns["last_s"]
    tpot = (last - first) / np.maximum(columns["output"] - 1, 1)
    begin = int(run.left_out * len(last)) if run.left_out < 1 else int(run.left_out)
    figures: dict[str, float] = {"kv_blocks": float(pool.costs.kv_blocks)}
    for name, seconds in zip(LATENCIES, (first - arrival, tpot, last - arrival), strict=True):
        figures |= statistics(name, seconds[begin:])
    span, gpus, watts = float(last.max()), run.replicas * pool.pool.devices, device_watts(result)
    rate = len(last) / span * run.replicas
    if run.tokens is None:
        each = run.replicas / span
        in_rate, out_rate = each * float(columns["prompt"].sum()), each * float(columns["output"].sum())
        total = in_rate / gpus + out_rate / gpus
    else:
        prompt, output = run.tokens
        in_rate, out_rate, total = rate * prompt, rate * output, rate * (prompt + output) / gpus
    return figures | {
        "req_s": rate,
        "out_tok_s": out_rate,
        "out_tok_s_per_gpu": out_rate / gpus,
        "in_tok_s_per_gpu": in_rate / gpus,
        "total_tok_s_per_gpu": total,
        "power_w_per_gpu": watts,
        "j_per_output_token": watts * gpus / out_rate,
    }


def device_watts(result: ServingResult) -> float:
    """Mean power of one device during steps, W."""
    totals = [member.meter.totals for member in result.fleet.members]
    busy_s = max(sum(total.busy_s for total in totals), 1e-9)
    pool = result.setting.pools[0]
    hosts = pool.cluster.host_watts / pool.cluster.devices_per_node
    return sum(total.joules for total in totals) / busy_s / pool.pool.devices - hosts
