"""The largest rate within the targets, on the event engine with the real arrivals and lengths.

Bisection with common random numbers: every rate of a seed draws the same lengths and the same unit gaps.
Several seeds give the confidence interval. A run lasts several times a request's own time in the system, and
its first part is left out: batches and queues need such a time to settle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import MeshwrightError
from planner.execution import Execution
from planner.serving.deployment import scenario_of
from planner.serving.engine_run import trial_run
from planner.serving.largest_rate import Steps, bracket
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting
from simulator.serving.workload.serving import MOST_REQUESTS

BISECTION = Steps(factor=1.15, close=0.02, runs=9)
"""Trial rates of one seed."""
SEEDS = 3
LONGER = 4
"""Length of the run that confirms a rate, over that of the trial runs: a queue that grows by a twentieth of
the arrivals adds two lifetimes to its last requests."""
LIFETIMES, SETTLING = 10, 2
"""Length of a run, and of its skipped warm-up, over the time of a request in the system."""
STUDENT = 4.303
"""97.5th percentile of Student's t with two degrees of freedom: three seeds."""


@dataclass(frozen=True)
class RefinedServing:
    """One deployment on the event engine.

    Attributes:
        goodput: mean over the seeds of the largest rate within the targets, requests a second.
        half_width: half-width of its 95 % confidence interval.
        problem: reason why it cannot run; the other fields are then 0.
    """

    goodput: float
    half_width: float
    problem: str = ""


def refine_serving(
    question: ServingQuestion, plans: Sequence[ServingPlan], execution: Execution
) -> Iterator[tuple[int, RefinedServing]]:
    """Find the largest rate of each plan.

    Yields:
        The number of a plan and its figures, in the order in which they are done.
    """
    return refine_scenarios(question, [(scenario_of(question, plan), plan) for plan in plans], execution)


def refine_scenarios(
    question: ServingQuestion, scenarios: Sequence[tuple[dict[str, Any], ServingPlan]], execution: Execution
) -> Iterator[tuple[int, RefinedServing]]:
    """Find the largest rate of scenarios, each with the plan that it deploys.

    Yields:
        The number of a scenario and its figures, in the order in which they are done.
    """
    calls = [
        (scenario, question.folder, plan.goodput, question.rate, lifetime(question, plan))
        for scenario, plan in scenarios
    ]
    for number, run, _ in execution.run(_largest, calls, _inputs):
        yield number, RefinedServing(**run)


def _inputs(
    scenario: dict[str, Any], folder: Path, expected: float, natural: float | None, lifetime: float
) -> dict[str, Any]:
    """Inputs of a deployment's run."""
    from planner.store import file_digests  # SQLite, which a search without runs does not need

    files = file_digests(scenario, folder)
    return {"ask": "refine", "scenario": scenario, "files": files, "rates": [expected, natural, lifetime]}


def _largest(
    scenario: dict[str, Any], folder: Path, expected: float, natural: float | None, lifetime: float
) -> dict[str, Any]:
    """Run of a deployment, as plain data."""
    try:
        setting = settled(make_serving(scenario, "plan", folder), expected * lifetime)
        seeds = [replace(setting, seed=setting.seed + seed) for seed in range(SEEDS)]
        arrivals = setting.serving.arrivals
        if arrivals is not None and arrivals.closed:
            rates = [closed_rate(seeded) for seeded in seeds]
        else:
            rates = [bisect(seeded, expected, natural) for seeded in seeds]
    except MeshwrightError as error:
        return asdict(RefinedServing(0.0, 0.0, str(error)))
    spread = float(np.std(rates, ddof=1)) / SEEDS**0.5
    return asdict(RefinedServing(float(np.mean(rates)), STUDENT * spread))


def lifetime(question: ServingQuestion, plan: ServingPlan) -> float:
    """Seconds of a request in the system where the targets just hold, at most."""
    slo = question.workload.slo
    latency = plan.e2e_s if plan.load >= plan.goodput else plan.full_s
    bound = inf if slo.tpot is None else (slo.ttft or 0.0) + slo.tpot * question.output
    seconds = min(latency, bound, slo.e2e or inf)
    return seconds if seconds < inf else plan.e2e_s


def settled(setting: ServingSetting, sequences: float) -> ServingSetting:
    """A run long enough for ``sequences`` requests in the system; a trace has the requests that it has."""
    serving = setting.serving
    requests = min(max(serving.requests, ceil(LIFETIMES * sequences)), MOST_REQUESTS)
    share = max(serving.skipped, min(SETTLING * sequences / requests, SETTLING / LIFETIMES))
    return replace(setting, serving=serving.model_copy(update={"requests": requests, "warmup": share}))


def bisect(setting: ServingSetting, expected: float, natural: float | None) -> float:
    """Largest rate of one seed: growing steps from the steady state's rate, then halves of the interval.

    A queue that grows slowly breaks no target before a short run ends, so the rate is confirmed by a longer
    one, and lowered until that holds.

    Args:
        setting: the run.
        expected: first rate, requests a second.
        natural: rate of a trace's own times.

    Returns:
        Requests a second; 0 where no rate meets the targets.
    """
    rate = bracket(setting, expected, natural, BISECTION).low
    confirming = longer(setting)
    for _ in range(BISECTION.runs):
        if not rate or trial_run(confirming, rate, natural).holds:
            return rate
        rate *= 1.0 - BISECTION.close
    return rate


def longer(setting: ServingSetting) -> ServingSetting:
    """The run that confirms a rate; a trace has the requests that it has."""
    serving = setting.serving
    if serving.trace is not None:
        return setting
    requests = min(LONGER * serving.requests, MOST_REQUESTS)
    return replace(setting, serving=serving.model_copy(update={"requests": requests}))


def closed_rate(setting: ServingSetting) -> float:
    """Requests a second of the clients of a closed loop; 0 where they miss a target."""
    metrics = serve(setting).metrics
    share = metrics.slo_share
    return metrics.request_rate if share is None or share >= setting.serving.slo.share else 0.0
