"""Latency, throughput and cost of a run, by vLLM's names and definitions.

TTFT counts from the client's send to the first token, TPOT is (e2e - TTFT) / (output tokens - 1), ITL are the
gaps between a request's tokens, e2e runs to the last token. Statistics leave out the first ``skipped`` share
of requests (warm-up). Rates count requests that ended between the arrival of the first counted request and
the last arrival (so the drain at the end is left out); where that window holds less than half of the run, as
in closed loops and bursts, until the last end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.serving.replica.meter import Meter, gap_percentiles
from simulator.serving.workload import Slo

SHARES = (0.5, 0.9, 0.95, 0.99)
FEW = 100
"""Requests per request in the tail of p99; p99 of fewer than ten times as many (1,000) is noise."""


@dataclass(frozen=True)
class Latency:
    """Statistics of one latency over requests, s."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: np.ndarray) -> Latency | None:
        """Statistics of values of shape (requests,), s; None for an empty array."""
        if not len(values):
            return None
        points = np.quantile(values, SHARES)
        return cls(float(values.mean()), *(float(point) for point in points))


@dataclass(frozen=True)
class ServingMetrics:
    """Figures of merit of one run."""

    requests: int
    """Requests that ended."""
    counted: int
    """Requests counted in statistics."""
    refused: int
    """Requests too long for every replica."""
    makespan_s: float
    window_s: float
    latencies: Mapping[str, Latency | None]
    """ttft, tpot, itl, e2e and queue."""
    arrival_rate: float
    request_rate: float
    input_rate: float
    """Prompt tokens a second."""
    output_rate: float
    """Output tokens a second."""
    output_rate_per_gpu: float
    total_rate_per_gpu: float
    slo_share: float | None
    """Share of counted requests that met all targets."""
    goodput: float | None
    """Requests a second that met all targets."""
    running: float
    """Mean sequences in a step of a replica."""
    waiting: float
    kv_use: float
    """Mean share of KV blocks in use during steps."""
    hit_rate: float
    """Share of prompt tokens found in a cache."""
    preemptions: int
    busy: float
    """Share of the replicas' time in steps."""
    joules: float
    joules_per_million: float
    """Cost per million output tokens, including idle time of replicas."""
    dollars_per_million: float
    sustainable_rate: float | None
    """Requests a second that the deployment completes while its queue grows; None where it does not."""
    by_priority: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Requests, ``ttft_s`` and ``e2e_s`` by priority, where there are several."""
    seconds_by_kind: Mapping[str, float] = field(default_factory=dict)
    steps_by_kind: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain keys and values for JSON."""
        latencies = {
            f"{name}_s": None if latency is None else vars(latency)
            for name, latency in self.latencies.items()
        }
        rest = {name: value for name, value in vars(self).items() if name != "latencies"}
        return {**latencies, **{name: dict(v) if isinstance(v, Mapping) else v for name, v in rest.items()}}


@dataclass(frozen=True)
class Hardware:
    """Devices occupied by the run."""

    gpus: int
    dollars_per_hour: float
    replica_seconds: float
    """Up time summed over replicas, s."""
    gpu_seconds: float
    idle_joules: float
    """Energy of the replicas between steps."""


def serving_metrics(
    columns: Mapping[str, np.ndarray],
    meters: list[Meter],
    slo: Slo,
    skipped: float,
    refused: int,
    hardware: Hardware,
    open_loop: bool,
) -> ServingMetrics:
    """Figures of a run.

    Args:
        columns: of the records of all requests that ended.
        meters: of all replicas.
        slo: latency targets.
        skipped: share of the first requests to leave out.
        refused: requests that never ran.
        hardware: devices and prices.
        open_loop: whether arrivals do not wait for completions.
    """
    arrival, first, last = columns["arrival_s"], columns["first_s"], columns["last_s"]
    counted_rows = slice(int(skipped * len(arrival)), None)
    begin, end, inside = _window(arrival, last, counted_rows, open_loop)
    window = max(end - begin, 1e-12)
    arrived = float(arrival.max(initial=0.0)) - begin
    counted = len(arrival[counted_rows])
    outputs, inputs = float(columns["output"][inside].sum()), float(columns["prompt"][inside].sum())
    ended = float(inside.sum()) / window
    met = _met_share(slo, columns, counted_rows)
    generated = max(int(columns["output"].sum()), 1)
    energy = sum(meter.totals.joules for meter in meters) + hardware.idle_joules
    gpu_hours = hardware.gpu_seconds / hardware.gpus / 3600
    return ServingMetrics(
        requests=len(arrival),
        counted=counted,
        refused=refused,
        makespan_s=float(last.max(initial=0.0)),
        window_s=window,
        latencies=_latencies(columns, counted_rows, meters),
        arrival_rate=counted / max(arrived, 1e-12) if arrived > 0 else 0.0,
        request_rate=ended,
        input_rate=inputs / window,
        output_rate=outputs / window,
        output_rate_per_gpu=outputs / window / hardware.gpus,
        total_rate_per_gpu=(inputs + outputs) / window / hardware.gpus,
        slo_share=met,
        goodput=None if met is None else met * ended,
        hit_rate=float(columns["cached"][counted_rows].sum())
        / max(float(columns["prompt"][counted_rows].sum()), 1.0),
        preemptions=int(columns["preemptions"].sum()),
        joules=energy,
        joules_per_million=energy / generated * 1e6,
        dollars_per_million=hardware.dollars_per_hour * gpu_hours / generated * 1e6,
        sustainable_rate=sustainable(arrival, first, last, open_loop),
        by_priority=_by_priority(columns, counted_rows),
        **_step_means(meters, hardware),
    )


def _window(
    arrival: np.ndarray, last: np.ndarray, counted: slice, open_loop: bool
) -> tuple[float, float, np.ndarray]:
    """Begin and end of the window of rates, s, and which requests ended inside it."""
    begin = float(arrival[counted][0]) if len(arrival[counted]) else 0.0
    stop, arrived = float(last.max(initial=0.0)), float(arrival.max(initial=0.0))
    end = arrived if open_loop and (arrived - begin) >= 0.5 * (stop - begin) else stop
    return begin, end, (last > begin) & (last <= end)


def _latencies(
    columns: Mapping[str, np.ndarray], counted: slice, meters: list[Meter]
) -> dict[str, Latency | None]:
    """Statistics of the counted requests, by name."""
    arrival = columns["arrival_s"][counted]
    ttft, e2e = columns["first_s"][counted] - arrival, columns["last_s"][counted] - arrival
    decoding = columns["output"][counted] - 1
    several = decoding > 0
    decode = (e2e - ttft)[several]
    gaps, itl = merged(meters), None
    if gaps:
        mean = float(decode.sum() / max(decoding[several].sum(), 1))
        itl = Latency(mean, *gap_percentiles(gaps, SHARES))
    return {
        "ttft": Latency.of(ttft),
        "tpot": Latency.of(decode / decoding[several]),
        "itl": itl,
        "e2e": Latency.of(e2e),
        "queue": Latency.of(columns["scheduled_s"][counted] - arrival),
    }


def _by_priority(columns: Mapping[str, np.ndarray], counted: slice) -> dict[int, dict[str, Any]]:
    """Counted requests and their latencies by priority; empty where all have one."""
    priority, arrival = columns["priority"][counted], columns["arrival_s"][counted]
    levels, by_level = np.unique(priority), {}
    for level in levels.tolist() if len(levels) > 1 else ():
        of_level = priority == level
        by_level[level] = {"requests": int(of_level.sum())}
        for name, end in (("ttft_s", "first_s"), ("e2e_s", "last_s")):
            by_level[level][name] = vars(Latency.of((columns[end][counted] - arrival)[of_level]))
    return by_level


def _step_means(meters: list[Meter], hardware: Hardware) -> dict[str, Any]:
    """Fields of ``ServingMetrics`` read off steps: means over busy time, seconds and steps by kind."""
    totals = [meter.totals for meter in meters]
    busy = sum(total.busy_s for total in totals)
    weights = [sum(column) for column in zip(*(_sums(meter) for meter in meters), strict=True)]
    kinds = ("prefill", "mixed", "decode")
    counts = {kind: sum(total.steps[kind] for total in totals) for kind in kinds}
    return {
        "running": weights[1] / busy if busy else 0.0,
        "waiting": weights[2] / busy if busy else 0.0,
        "kv_use": weights[3] / busy if busy else 0.0,
        "busy": busy / hardware.replica_seconds if hardware.replica_seconds else 0.0,
        "seconds_by_kind": {kind: sum(total.seconds[kind] for total in totals) for kind in kinds},
        "steps_by_kind": counts if any(counts.values()) else {},
    }


def sustainable(arrival: np.ndarray, first: np.ndarray, last: np.ndarray, open_loop: bool) -> float | None:
    """Completions per second of a deployment whose queue keeps growing; None if the queue is stable.

    Completions are counted from the first quarter of the requests to the third, while the queue is full: at a
    load far above capacity few requests end before the last has arrived.

    The queue keeps growing if, in the second half of the arrivals, less than 0.9 of the arrived requests end,
    a tenth of all requests are unfinished at the last arrival, and the mean TTFT of the last quarter is 1.5
    times that of the second.
    """
    count = len(arrival)
    if not open_loop or count < 50 or arrival[-1] <= arrival[0]:
        return None
    ends = np.sort(last)
    middle, final = float(arrival[count // 2]), float(arrival[-1])
    if final <= middle:
        return None
    done = np.searchsorted(ends, final) - np.searchsorted(ends, middle)
    ttft = first - arrival
    before, after = ttft[count // 4 : count // 2].mean(), ttft[-(count // 4) :].mean()
    here = count - np.searchsorted(ends, final)
    if done >= 0.9 * (count - count // 2) or here < 0.1 * count or after < 1.5 * before:
        return None
    begin, end = float(ends[count // 4]), float(ends[3 * count // 4])
    return (3 * count // 4 - count // 4) / (end - begin) if end > begin else None


def merged(meters: list[Meter]) -> dict[int, int]:
    """The gaps between tokens of all replicas."""
    gaps: dict[int, int] = {}
    for meter in meters:
        for index, count in meter.totals.gaps.items():
            gaps[index] = gaps.get(index, 0) + count
    return gaps


def _sums(meter: Meter) -> list[float]:
    sums = [float(total) for total in meter.totals.series.bins.sum(axis=0)]
    sums[3] /= max(meter.kv_total, 1)
    return sums


def _met_share(slo: Slo, columns: Mapping[str, np.ndarray], counted: slice) -> float | None:
    """Share of the counted requests that met all targets; None without targets."""
    if not slo.has_targets:
        return None
    met = met_targets(slo, columns)[counted]
    return float(met.mean()) if len(met) else 0.0


def met_targets(slo: Slo, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether requests met all targets, shape (requests,).

    Args:
        slo: latency targets.
        columns: of the requests' records.
    """
    arrival = columns["arrival_s"]
    ttft, e2e = columns["first_s"] - arrival, columns["last_s"] - arrival
    met = np.ones(len(ttft), dtype=bool)
    if slo.ttft is not None:
        met &= ttft <= slo.ttft
    if slo.tpot is not None:
        met &= (e2e - ttft) <= slo.tpot * np.maximum(columns["output"] - 1, 1) + 1e-12
    if slo.e2e is not None:
        met &= e2e <= slo.e2e
    return met
