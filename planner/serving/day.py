"""Replicas over a day: the cheapest timetable for rates that change, beside a fixed count and autoscaling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import InfeasibleError, InputError
from planner.serving.deployment import scenario_of
from planner.serving.plan import SECONDS_AN_HOUR, ReplicaGroup, ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import ReplicaCases, best_of_group, largest_rate
from planner.serving.shapes import ReplicaShape, shapes
from simulator.serving.fleet.scaling import seconds_up
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.arrivals.piecewise import Piecewise

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

BUSY = 0.8
"""Target of the autoscaler: sequences of a replica over those at its largest rate."""
LONGEST_START_S = 86_400
"""Seconds from renting a replica to its first request."""
MOST_REQUESTS = 2_000_000
"""Maximum requests of a day on the event engine."""


@dataclass(frozen=True, eq=False, repr=False)
class DayPlan:
    """Replicas of one shape over a cycle of rates.

    Attributes:
        question: the question; its arrivals are piecewise.
        group: one replica with its limits.
        rate: largest rate of a replica within the targets, requests a second.
        sequences: mean sequences in a replica at that rate.
        needed: replicas of each period, shape (periods,).
        cold_start_s: from renting a replica to its first request.
    """

    question: ServingQuestion
    group: ReplicaGroup
    rate: float
    sequences: float
    needed: Counts
    cold_start_s: float

    def __repr__(self) -> str:
        """Replicas of each period."""
        counts = ", ".join(map(str, self.needed.tolist()[:48]))
        return f"DayPlan({self.question.model.name}: {counts} replicas of {self.rate:.3g} requests/s)"

    @property
    def arrivals(self) -> Piecewise:
        """The cycle of rates."""
        return piecewise(self.question)

    @property
    def hours(self) -> float:
        """Length of the cycle."""
        return self.arrivals.period * len(self.needed) / SECONDS_AN_HOUR

    @property
    def usd_per_hour(self) -> float:
        """Price of one replica."""
        return self.group.devices * self.question.types[0].usd_per_hour

    @property
    def timetable_usd(self) -> float:
        """Cost of a cycle where the rates are known ahead."""
        seconds = replica_seconds(self.needed, self.arrivals.period, self.cold_start_s)
        return seconds / SECONDS_AN_HOUR * self.usd_per_hour

    @property
    def fixed_usd(self) -> float:
        """Cost of a cycle with the count of the highest rate throughout."""
        return float(self.needed.max()) * self.hours * self.usd_per_hour


@dataclass(frozen=True)
class DayRun:
    """A cycle on the event engine.

    Attributes:
        scaler: name of the policy.
        usd: cost of the replicas held.
        slo_share: share of requests within the targets.
        most: maximum concurrent replicas.
    """

    scaler: str
    usd: float
    slo_share: float
    started: int


def piecewise(question: ServingQuestion) -> Piecewise:
    """The rates of a question.

    Raises:
        InputError: they do not change over time.
    """
    arrivals = question.workload.arrivals
    if not isinstance(arrivals, Piecewise):
        raise InputError("a day needs arrivals of kind piecewise (`period` and `rates`)", "workload.arrivals")
    return arrivals


def plan_day(question: ServingQuestion, cold_start_s: float) -> DayPlan:
    """Find the shape and the timetable that carry all rates at the least cost.

    Raises:
        InputError: the arrivals are not piecewise, there are no targets, or the start takes no finite time.
        InfeasibleError: no replica fits or meets the targets, or the devices do not carry the highest rate.
    """
    rates = np.array(piecewise(question).rates)
    if not question.workload.slo.has_targets:
        raise InputError("a day needs a target: ttft, tpot or e2e", "workload.slo")
    if not 0 <= cold_start_s <= LONGEST_START_S:
        raise InputError(f"must be from 0 to {LONGEST_START_S:,} s, found {cold_start_s:g}", "cold start")
    plans = [_plan(question, shape, rates, cold_start_s) for shape in shapes(question, Counter())]
    able = [plan for plan in plans if plan is not None]
    if not able:
        raise InfeasibleError(
            f"no replica of {question.model.name} on {question.cluster.device.name} meets the targets"
        )
    fitting = [plan for plan in able if plan.group.devices * plan.needed.max() <= question.devices]
    if not fitting:
        least = min(int(plan.group.devices * plan.needed.max()) for plan in able)
        raise InfeasibleError(
            f"{rates.max():g} requests/s need {least} devices, {question.devices} are there; "
            "more devices or wider targets would help"
        )
    return min(fitting, key=lambda plan: plan.timetable_usd)


def _plan(
    question: ServingQuestion, shape: ReplicaShape, rates: Array, cold_start_s: float
) -> DayPlan | None:
    """The timetable of one shape; None where it misses the targets at every rate."""
    cases = ReplicaCases.of(question, [shape])
    alone = np.zeros(len(cases), np.int64)
    largest = largest_rate(cases)
    best = best_of_group(largest, alone)
    rate = float(largest[best[0]])
    if rate <= 0:
        return None
    best_case = cases[best]
    state = best_case.state(np.array([rate]))
    group = ReplicaGroup(shape, "mixed", 1, int(best_case.budget[0]), int(best_case.sequences[0]))
    needed = np.maximum(np.ceil(np.round(rates / rate, 9)), 1).astype(np.int64)
    return DayPlan(question, group, rate, float(rate * state.e2e_s[0]), needed, cold_start_s)


def replica_seconds(needed: Counts, period_s: float, cold_start_s: float) -> float:
    """Least seconds for which replicas are held over a cycle.

    A replica is held from its start, ``cold_start_s`` before it serves. The k-th replica is let go in a gap
    only if the gap is longer than a start. Replicas are independent, so the sum is the minimum.

    Args:
        needed: replicas of each period, shape (periods,).
        period_s: length of a period.
        cold_start_s: seconds of a start.
    """
    seconds = 0.0
    for level in range(1, int(needed.max(initial=0)) + 1):
        active = needed >= level
        if active.all():
            seconds += len(needed) * period_s
            continue
        # Begin the cycle at a start, so that no gap goes over its end.
        first = int(np.flatnonzero(active & ~np.roll(active, 1))[0])
        gaps = np.diff(np.flatnonzero(np.append(np.roll(active, -first), True))) - 1
        seconds += active.sum() * period_s + np.minimum(gaps[gaps > 0] * period_s, cold_start_s).sum()
    return seconds


def run_day(plan: DayPlan, progress: Callable[[float], None] | None = None) -> Iterator[DayRun]:
    """Run the cycle on the event engine: by the timetable, by autoscaling, with the fixed count.

    Args:
        plan: replicas of each period.
        progress: called with the finished share of the three runs.

    Raises:
        InputError: the cycle has more than ``MOST_REQUESTS`` requests.
    """
    arrivals, most_replicas = plan.arrivals, int(plan.needed.max())
    requests = round(float(np.sum(arrivals.rates)) * arrivals.period)
    if requests > MOST_REQUESTS:
        raise InputError(
            f"the cycle has {requests:,} requests, more than {MOST_REQUESTS:,} for the event engine; "
            "shorten the periods",
            "workload.arrivals",
        )
    start = {"start": plan.cold_start_s}
    timetable = {**start, "period": arrivals.period, "replicas": plan.needed.tolist()}
    reactive = {**start, "target": BUSY * plan.sequences, "most": most_replicas}
    first = int(plan.needed[0])
    runs = (("scheduled", timetable, first), ("reactive", reactive, first), ("fixed", {}, most_replicas))
    for number, (scaler, options, replicas) in enumerate(runs):

        def report(share: float, ended: int = number) -> None:
            if progress is not None:
                progress((ended + share) / len(runs))

        yield _run(plan, scaler, options, replicas, requests, report)


def day_scenario(plan: DayPlan) -> dict[str, Any]:
    """The timetable as a scenario that ``simulate`` reads."""
    options = {"start": plan.cold_start_s, "period": plan.arrivals.period, "replicas": plan.needed.tolist()}
    return _scenario(plan, "scheduled", options, int(plan.needed[0]))


def _scenario(plan: DayPlan, scaler: str, options: dict[str, Any], replicas: int) -> dict[str, Any]:
    deployed = ServingPlan(
        (replace(plan.group, replicas=replicas),), plan.rate, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True
    )
    scenario = scenario_of(plan.question, deployed)
    scenario["deployment"] |= {"scaler": scaler, "scaler_options": options}
    return scenario


def _run(
    plan: DayPlan,
    scaler: str,
    options: dict[str, Any],
    replicas: int,
    requests: int,
    progress: Callable[[float], None],
) -> DayRun:
    scenario = _scenario(plan, scaler, options, replicas)
    scenario["workload"] |= {"requests": requests, "warmup": 0.0}
    result = serve(make_serving(scenario, "plan", plan.question.folder), progress)
    end = plan.hours * SECONDS_AN_HOUR
    seconds = sum(seconds_up(member, end) for member in result.fleet.members)
    return DayRun(
        scaler,
        seconds / SECONDS_AN_HOUR * plan.usd_per_hour,
        result.metrics.slo_share or 0.0,
        len(result.fleet.members),
    )
