"""Plans ranked by what their run of weeks needs: plan, checkpoint mechanism, period and spares together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from pydantic import TypeAdapter

from core.errors import InputError
from core.records import record
from planner.runs import PlannedRun, run_plan, shrunk_speeds
from planner.training.constraints import Constraints
from planner.training.prediction import Prediction
from planner.training.search import SearchResult, search
from simulator.checkpoints import MECHANISMS, AnyMechanism, Mechanism
from simulator.plan import Plan, Plans
from simulator.runs.build import RunCase
from simulator.runs.question import AskedRun
from simulator.setting import Setting

CANDIDATES = 32
"""Plans of the search, fastest first, whose runs are compared by the closed form."""

TRIED = ("synchronous", "asynchronous", "lazy", "peers")
"""Mechanisms that are compared where the scenario states none."""

DRAWN, FEWEST, FAULTS = 4, 2, 1000
"""Most and fewest replications of each of the best runs, and the faults in all of them beyond which fewer are
drawn: sums of many faults vary little. All runs see the same faults, so that few tell them apart."""

QUANTILES = {"p50": 0.5, "p90": 0.9}


@record()
class RankedRun:
    """One plan with a mechanism, its period and spares.

    ``value`` is what it is ranked by: days, dollars or kWh of the whole run at the quantile.
    """

    gpus: int
    plan: Plan
    run: PlannedRun
    value: float

    @property
    def mechanism(self) -> str:
        """Name of the checkpoint mechanism; empty without checkpoints."""
        mechanism = self.run.case.request.question.checkpoints
        return mechanism.mechanism if mechanism is not None else ""


@record()
class RunSearch:
    """Ranked runs of one size, best first, and why others are not there."""

    gpus: int
    ranked: Sequence[RankedRun]
    problem: str = ""


@record()
class RunRanking:
    """Ranked runs by size."""

    title: str
    objective: str
    quantile: str
    sizes: Sequence[RunSearch]

    @property
    def best(self) -> RankedRun | None:
        """The best run of all sizes; None where none works."""
        return min(
            (each for size in self.sizes for each in size.ranked), key=lambda each: each.value, default=None
        )


def planned_run(
    prediction: Prediction,
    request: AskedRun,
    constraints: Constraints,
    replications: int | None = None,
    progress: Callable[[float], None] | None = None,
    engine: bool = False,
    partial: bool = False,
) -> PlannedRun:
    """The run of a predicted plan; plans for fewer nodes are searched where the run asks for them.

    Args:
        prediction: of the plan's step.
        request: the run.
        constraints: of plans for fewer nodes.
        replications: in place of the question's.
        progress: called with the finished share.
        engine: time saves on the event engine, beside the step's traffic.
        partial: whether Ctrl-C ends the replications and keeps those that are done.

    Raises:
        InputError: the run cannot work.
    """
    setting = prediction.setting
    rate = float(setting.training.tokens / prediction.step.time[0])
    speeds = shrunk_speeds(setting, request, lambda smaller: _best_rate(smaller, constraints), rate)
    return run_plan(prediction, request, replications, progress, speeds, engine, partial)


def rank_runs(
    setting: Setting,
    request: AskedRun,
    constraints: Constraints,
    objective: str = "time",
    quantile: str = "p50",
    top: int = 5,
    headroom: float = 0.0,
    progress: Callable[[float], None] | None = None,
    offload: bool = False,
) -> RunSearch:
    """Search plans, compare the runs of the fastest by the closed form, and draw the best ones.

    Args:
        setting: model, cluster at its size, workload, framework.
        request: the run; without `checkpoints`, the mechanisms of ``TRIED`` are compared at their best
            period.
        constraints: fields of the plan to hold or to limit.
        objective: time, cost or energy of the whole run.
        quantile: p50 or p90 of the wall time.
        top: runs to return.
        headroom: share of a device's memory to leave free.
        progress: called with the finished share of the search.
        offload: try optimizer and gradients on the host and on SSDs too.
    """
    gpus = setting.cluster.devices
    try:
        result = search(setting, gpus, constraints, "time", CANDIDATES, progress, headroom, offload=offload)
    except InputError as error:
        return RunSearch(gpus, (), error.problem.partition(":")[0])
    if not len(result.plans):
        words = result.shortfall.message().partition("\n")[0] if result.shortfall else "no plan fits"
        return RunSearch(gpus, (), words)
    request = _same_work(request, float(result.step.time[0]))
    runs, problem = _best_by_closed_form(result, request, objective, top)
    if not runs:
        return RunSearch(gpus, (), problem)
    ranked = [_drawn(result, index, variant, objective, quantile) for index, variant in runs]
    return RunSearch(gpus, sorted(ranked, key=lambda each: each.value))


def variants(request: AskedRun) -> list[AskedRun]:
    """The run with every mechanism to compare, and with enough spares where none are stated."""
    question = request.question
    if question.spares == 0 and question.recovery.replace.takes_spares:
        question = question.model_copy(update={"spares": "auto"})
    mechanisms: list[Mechanism | None] = [question.checkpoints]
    if question.checkpoints is None and request.faults.processes:
        reader: TypeAdapter[Mechanism] = TypeAdapter(AnyMechanism)
        mechanisms = [reader.validate_python({"mechanism": name}) for name in TRIED if name in MECHANISMS]
    return [
        replace(request, question=question.model_copy(update={"checkpoints": each})) for each in mechanisms
    ]


def _same_work(request: AskedRun, step_s: float) -> AskedRun:
    """The run with ``days`` as the steps of the fastest plan: all plans do the same work."""
    question = request.question
    if question.days is None:
        return request
    steps = max(int(question.days * 86400 / step_s), 1)
    return replace(request, question=question.model_copy(update={"days": None, "steps": steps}))


def _best_by_closed_form(
    result: SearchResult, request: AskedRun, objective: str, top: int
) -> tuple[list[tuple[int, AskedRun]], str]:
    """Indices of the plans and mechanisms of least time, cost or energy; and why a run cannot work."""
    cases = [RunCase(result.setting, result.plans, result.step, variant) for variant in variants(request)]
    weight = _weights(result, objective)
    ranking: list[tuple[float, int, int]] = []
    for number, case in enumerate(cases):
        finish = case.finish_s()
        ranking += [(float(finish[index] * weight[index]), number, index) for index in range(len(finish))]
    best: list[tuple[int, AskedRun]] = []
    problem = "no run finishes"
    for _, number, index in sorted(each for each in ranking if each[0] > 0):
        try:
            cases[number].inputs(index)
        except InputError as error:
            problem = str(error)
            continue
        best.append((index, cases[number].request))
        if len(best) == top:
            break
    return best, problem


def _weights(result: SearchResult, objective: str) -> np.ndarray:
    """What a second of a run costs beside time; the spares of one size are the same for all plans."""
    if objective == "energy":
        metrics = result.metrics
        return np.asarray(metrics.kwh_per_million_tokens / metrics.step_time_s)
    return np.ones(len(result.plans))


def _drawn(result: SearchResult, index: int, request: AskedRun, objective: str, quantile: str) -> RankedRun:
    """Draw one plan's run."""
    plan = result.plans.plan(index)
    prediction = Prediction.of(result.setting, Plans.of(plan))
    case = RunCase(prediction.setting, prediction.plans, prediction.step, request)
    expected = max(case.rate * float(case.finish_s()[0]), 1.0)
    drawn = int(np.clip(FAULTS / expected, FEWEST, DRAWN))
    drawn = min(drawn, request.question.replications)
    run = planned_run(prediction, request, Constraints.of({}, {}), drawn)
    days = run.outcome.quantile(QUANTILES[quantile]) / 86400
    share = days * 86400 / run.outcome.mean_s
    value = {"time": days, "cost": run.usd * share, "energy": run.kwh * share}[objective]
    return RankedRun(result.setting.cluster.devices, plan, run, value)


def _best_rate(setting: Setting, constraints: Constraints) -> float | None:
    """Tokens per second of the best plan; None where none fits."""
    try:
        result = search(setting, setting.cluster.devices, constraints, "time", 1)
    except InputError:
        return None
    return float(setting.training.tokens / result.step.time[0]) if len(result.plans) else None
