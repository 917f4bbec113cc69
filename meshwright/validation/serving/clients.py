"""Benchmark clients of published runs: constants with their sources, and the runs of their scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hwmodels.cluster import clusters
from hwmodels.loading import Strict, build, read_mapping
from simulator.serving.engines.engine import Figure
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving
from simulator.serving.steady.kinds import TABLES, ReplicaKind
from simulator.serving.workload.traces import plain

FILE = Path(__file__).with_name("clients.yaml")
TRACE = "requests.csv"
LATENCIES = ("ttft", "tpot", "e2e")


class ClientDefaults(Strict):
    """What clients do and rows leave out."""

    gap: Figure[float]
    requests_per_client: Figure[int]
    jittered_from: Figure[float]
    unstated_from: Figure[float]
    tuned_share: Figure[float]
    run_share: Figure[float]
    acceptance: Figure[float]
    acceptance_of_random_tokens: Figure[float]
    sized_margin: Figure[int]


@cache
def client_defaults() -> ClientDefaults:
    """The constants of `clients.yaml`."""
    return build(ClientDefaults, read_mapping(FILE), str(FILE))


def pool_keys(kind: ReplicaKind) -> dict[str, Any]:
    """Keys of a deployment whose replicas are of this kind."""
    keys = kind.pool.model_dump(exclude_defaults=True, exclude_none=True)
    return {**keys, "engine": kind.engine.name, "weights": kind.pool.weights}


def cluster_key(kind: ReplicaKind) -> str:
    """The cluster of a scenario: a device's name means its usual cluster."""
    device = kind.cluster.device.name
    return device if clusters.resolve(device) is None else kind.cluster.name


def scenario_of(kind: ReplicaKind, workload: Mapping[str, Any], **deployment: Any) -> dict[str, Any]:
    """A serving scenario of replicas of one kind, with further keys of their deployment."""
    return {
        "model": kind.model.name,
        "cluster": cluster_key(kind),
        "workload": workload,
        "deployment": {**pool_keys(kind), **deployment},
    }


def generated(requests: int, arrivals: Mapping[str, Any], prompt: Any, output: Any) -> dict[str, Any]:
    """Workload of a scenario that draws its requests."""
    return {"kind": "serving", "requests": requests, "arrivals": arrivals, "input": prompt, "output": output}


def run(scenario: Mapping[str, Any], where: str = "row", folder: Path = Path()) -> ServingResult:
    """Run a row's scenario as `meshwright simulate` does."""
    return serve(make_serving(scenario, where, folder, TABLES))


def trace_text(
    arrivals: Sequence[float], prompts: Sequence[int], outputs: Sequence[int], cached: Sequence[int]
) -> str:
    """Requests as a plain trace, whose prompts find tokens in the prefix cache."""
    rows = zip(arrivals, prompts, outputs, cached, strict=True)
    lines = [",".join((*plain.COLUMNS, plain.CACHED))]
    return "\n".join([*lines, *(f"{time!r},{new},{out},{hits}" for time, new, out, hits in rows), ""])


def run_trace(scenario: Mapping[str, Any], trace: str) -> ServingResult:
    """Run a scenario whose workload reads the trace `requests.csv`."""
    with TemporaryDirectory() as folder:
        (Path(folder) / TRACE).write_text(trace, encoding="utf-8")
        return run(scenario, folder=Path(folder))


def traced(requests: int, **workload: Any) -> dict[str, Any]:
    """Workload of a scenario that reads `requests.csv`."""
    return {
        "kind": "serving",
        "requests": requests,
        "trace": {"format": "plain", "path": TRACE},
        **workload,
    }


def latencies(result: ServingResult) -> dict[str, np.ndarray]:
    """TTFT, TPOT and end-to-end latency of all requests in the order of their arrival, s."""
    columns = result.records.columns()
    arrival, first, last = columns["arrival_s"], columns["first_s"], columns["last_s"]
    return {
        "ttft": first - arrival,
        "tpot": (last - first) / np.maximum(columns["output"] - 1, 1),
        "e2e": last - arrival,
    }


def statistics(
    name: str, seconds: np.ndarray, unit: float = 1e3, percents: Sequence[int] = (50, 90, 99)
) -> dict[str, float]:
    """Mean and percentiles of a latency as columns of a row.

    Args:
        name: of the columns before the statistic.
        seconds: of all requests.
        unit: that of the columns in a second.
        percents: percentiles.
    """
    return {
        f"{name}_mean": unit * float(seconds.mean()),
        **{f"{name}_p{percent}": unit * float(np.percentile(seconds, percent)) for percent in percents},
    }


def device_watts(result: ServingResult) -> float:
    """Mean power of one device during steps, W."""
    members, setting = result.fleet.members, result.setting
    totals = [member.meter.totals for member in members]
    busy_s = max(sum(total.busy_s for total in totals), 1e-9)
    devices = setting.pools[0].pool.devices
    cluster = setting.pools[0].cluster
    hosts = cluster.host_watts / cluster.devices_per_node
    return sum(total.joules for total in totals) / busy_s / devices - hosts
