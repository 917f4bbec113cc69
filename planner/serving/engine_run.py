"""One run of a deployment on the event engine at a rate: whether the targets hold, and what it served."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from simulator.serving.metrics import met_targets
from simulator.serving.replica.records import Records
from simulator.serving.result import serve
from simulator.serving.setting import ServingSetting
from simulator.serving.workload.arrivals.poisson import Poisson
from simulator.serving.workload.serving import Serving


@dataclass(frozen=True)
class Trial:
    """What a run at a rate says.

    Attributes:
        holds: whether the share of requests meets the targets, and the queue does not keep growing.
        served: requests a second that ended after the first quarter of them.
        latencies: of the run; None where it does not hold.
    """

    holds: bool
    served: float
    latencies: Latencies | None = None


@dataclass(frozen=True)
class Latencies:
    """Latencies of a run, as a deployment tells them: TTFT of the targets' share, means of the others, s."""

    ttft_s: float
    tpot_s: float
    e2e_s: float


def latencies(setting: ServingSetting, rate: float, natural: float | None) -> Latencies:
    """Latencies of a deployment at a rate; the arguments are those of `trial_run`."""
    serving = at_rate(setting.serving, rate, natural)
    return _latencies(serving, serve(replace(setting, serving=serving)).records)


def _latencies(serving: Serving, records: Records) -> Latencies:
    columns = records.columns()
    counted = columns["serial"] >= int(serving.skipped * serving.requests)
    arrival, first, last, output = (
        columns[name][counted] for name in ("arrival_s", "first_s", "last_s", "output")
    )
    ttft = float(np.quantile(first - arrival, serving.slo.share))
    decode = float((last - first).mean())
    several = output > 1
    tpot = float(((last - first)[several] / (output[several] - 1)).mean()) if several.any() else 0.0
    return Latencies(ttft, tpot, ttft + decode)


def at_rate(serving: Serving, rate: float, natural: float | None) -> Serving:
    """A workload at a rate; a trace keeps its own times, rescaled."""
    trace = serving.trace
    if trace is not None and serving.arrivals is None and natural:
        scaled = trace.model_copy(update={"rate_scale": trace.rate_scale * rate / natural})
        return serving.model_copy(update={"trace": scaled})
    return serving.model_copy(update={"arrivals": Poisson(rate=rate)})


def trial_run(
    setting: ServingSetting, rate: float, natural: float | None, with_warm_up: bool = False
) -> Trial:
    """Run a deployment at a rate; the run ends where more requests have missed a target than may.

    Args:
        setting: the run.
        rate: requests a second.
        natural: rate of a trace's own times, which are rescaled.
        with_warm_up: whether the targets must hold over the whole run too. It begins empty, so that one that
            misses them before it settles has been lucky afterwards.
    """
    serving = at_rate(setting.serving, rate, natural)
    misses = Misses(serving)
    # Where replicas fail, the number of a request does not say whether it is counted.
    enough = misses.too_many if setting.deployment.failures is None else None
    run = serve(replace(setting, serving=serving), enough=enough)
    metrics = run.metrics
    share = 0.0 if misses.exceeded or metrics.slo_share is None else metrics.slo_share
    if with_warm_up and share >= serving.slo.share:
        share = min(share, float(met_targets(serving.slo, run.records.columns()).mean()))
    holds = share >= serving.slo.share and metrics.sustainable_rate is None
    return Trial(holds, _served(run.records), _latencies(serving, run.records) if holds else None)


def _served(records: Records) -> float:
    """Requests a second that ended after the first quarter of them; infinite where they are few."""
    ends = np.sort(records.columns()["last_s"])
    first = len(ends) // 4
    span = float(ends[-1] - ends[first]) if len(ends) else 0.0
    return (len(ends) - 1 - first) / span if span > 0 else inf


class Misses:
    """Counts the requests of a run that missed a target.

    Args:
        serving: the workload; it has at most its number of requests.
    """

    def __init__(self, serving: Serving) -> None:
        self._slo = serving.slo
        self._first = int(serving.skipped * serving.requests)
        self._most = (1.0 - serving.slo.share) * (serving.requests - self._first)
        self._seen = self._missed = 0

    @property
    def exceeded(self) -> bool:
        """Whether more of the counted requests missed a target than may: the others cannot change that."""
        return self._missed > self._most + 1e-6

    def too_many(self, records: Records, refused: int) -> bool:
        """Count the requests that ended since the last call; see `exceeded`.

        Args:
            records: of all requests that ended.
            refused: requests that never ran, and are not counted.
        """
        columns = records.since(self._seen)
        self._seen = len(records)
        counted = columns["serial"] - refused >= self._first
        self._missed += int(np.count_nonzero(counted & ~met_targets(self._slo, columns)))
        return self.exceeded
