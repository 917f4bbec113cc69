"""The largest rate within the targets, on the event engine with the real arrivals and lengths.

Bisection with common random numbers: every rate of a seed draws the same lengths and the same unit gaps.
Several seeds give the confidence interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels.errors import MeshwrightError
from planner.execution import Execution
from planner.serving.deployment import scenario_of
from planner.serving.plan import ServingPlan
from planner.serving.question import Question
from planner.store import file_digests
from simulator.serving.arrivals.poisson import Poisson
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting

HALVINGS = 6
SEEDS = 3
WIDEST = 2.0
"""How far above and below the steady state's rate the search begins."""
STUDENT = 4.303
"""97.5th percentile of Student's t with two degrees of freedom: three seeds."""


@dataclass(frozen=True)
class RefinedServing:
    """One deployment on the event engine.

    Attributes:
        goodput: mean over the seeds of the largest rate within the targets, requests a second.
        half_width: of its 95 % confidence interval.
        problem: why it cannot run; then the others are 0.
    """

    goodput: float
    half_width: float
    problem: str = ""


def refine_serving(
    question: Question, plans: Sequence[ServingPlan], execution: Execution
) -> Iterator[tuple[int, RefinedServing]]:
    """Find the largest rate of each plan.

    Yields:
        The number of a plan and its figures, in the order in which they are done.
    """
    calls = [(scenario_of(question, plan), question.folder, plan.goodput, question.rate) for plan in plans]
    for number, run, _ in execution.run(_largest, calls, _inputs):
        yield number, RefinedServing(**run)


def _inputs(scenario: dict[str, Any], folder: Path, expected: float, natural: float | None) -> dict[str, Any]:
    """Inputs of a deployment's run."""
    files = file_digests(scenario, folder)
    return {"ask": "refine", "scenario": scenario, "files": files, "rates": [expected, natural]}


def _largest(
    scenario: dict[str, Any], folder: Path, expected: float, natural: float | None
) -> dict[str, Any]:
    """Run of a deployment, as plain data."""
    try:
        setting = make_serving(scenario, "plan", folder)
        found = [
            _bisect(replace(setting, seed=setting.seed + seed), expected, natural) for seed in range(SEEDS)
        ]
    except MeshwrightError as error:
        return asdict(RefinedServing(0.0, 0.0, str(error)))
    spread = float(np.std(found, ddof=1)) / SEEDS**0.5
    return asdict(RefinedServing(float(np.mean(found)), STUDENT * spread))


def _bisect(setting: ServingSetting, expected: float, natural: float | None) -> float:
    """Largest rate of one seed, to a few percent."""
    low, high = 0.0, max(expected, 1e-3) * WIDEST
    rate = max(expected, 1e-3)
    for _ in range(HALVINGS):
        if _meets(setting, rate, natural):
            low = rate
        else:
            high = rate
        rate = 0.5 * (low + high) if low else rate / WIDEST
    return low


def _meets(setting: ServingSetting, rate: float, natural: float | None) -> bool:
    """Whether the targets hold at a rate; a trace's own times are rescaled from its ``natural`` rate."""
    serving = setting.serving
    trace = serving.trace
    if trace is not None and serving.arrivals is None and natural:
        scaled = trace.model_copy(update={"rate_scale": trace.rate_scale * rate / natural})
        serving = serving.model_copy(update={"trace": scaled})
    else:
        serving = serving.model_copy(update={"arrivals": Poisson(rate=rate)})
    metrics = serve(replace(setting, serving=serving)).metrics
    share = metrics.slo_share
    return share is not None and share >= serving.slo.share and metrics.sustainable_rate is None
