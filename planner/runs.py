"""Runs of weeks: one plan's run, and plans ranked by what their run needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from core.errors import InputError
from core.records import record
from planner.training.prediction import Prediction, simulate_plan
from simulator.plan import Plan
from simulator.runs.build import RunCase
from simulator.runs.closed_form import slowest_of_iid
from simulator.runs.inputs import Slow
from simulator.runs.question import AskedRun, Replan, TimedStraggler
from simulator.runs.result import RunOutcome, simulate_run
from simulator.setting import Setting
from simulator.stragglers import Straggler, check_stragglers

RAMP = 8
"""Constant pieces that stand for a ramp."""

SAMPLES = 20_000
"""Draws of a noise law, from which the slowest of the replicas follows."""


@record()
class PlannedRun:
    """One plan's step and its run."""

    prediction: Prediction
    case: RunCase
    outcome: RunOutcome

    @property
    def kwh(self) -> float:
        """Energy of the whole run with its spares."""
        setting, metrics = self.prediction.setting, self.prediction.metrics
        per_step = float(metrics.kwh_per_million_tokens[0]) * setting.training.tokens / 1e6
        return self.outcome.energy_kwh(setting.cluster, per_step * 3.6e6 / float(metrics.step_time_s[0]))

    @cached_property
    def usd(self) -> float:
        """Money for the whole run with its spares."""
        return self.outcome.usd(self.prediction.setting.cluster)


def run_plan(
    prediction: Prediction,
    request: AskedRun,
    replications: int | None = None,
    progress: Callable[[float], None] | None = None,
    shrunk: Sequence[float] = (),
    engine: bool = False,
    partial: bool = False,
) -> PlannedRun:
    """Simulate the run of one plan.

    Args:
        prediction: of the plan's step.
        request: the run.
        replications: in place of the question's.
        progress: called with the finished share.
        shrunk: speeds with fewer nodes; see `shrunk_speeds`.
        engine: time saves on the event engine, beside the step's traffic.
        partial: whether Ctrl-C ends the replications and keeps those that are done.

    Raises:
        InputError: the run cannot work; see `RunCase.inputs`.
    """
    setting, plan = prediction.setting, prediction.plans.plan(0)
    case = RunCase(setting, prediction.plans, prediction.step, request, engine)
    inputs = case.inputs(0, slow_parts(prediction, plan, request), shrunk)
    count = replications or request.question.replications
    outcome = simulate_run(inputs, count, request.question.seed, float(case.late[0]), progress, partial)
    return PlannedRun(prediction, case, outcome)


def slow_parts(prediction: Prediction, plan: Plan, request: AskedRun) -> list[Slow]:
    """The parts of a run that stragglers slow down, each timed on the event engine.

    Raises:
        InputError: a straggler that the plan does not have.
    """
    slowed: list[Slow] = []
    for number, straggler in enumerate(request.question.stragglers):
        where = f"{request.where}.stragglers.{number}"
        factor = _factor(prediction, plan, straggler, where)
        end = math.inf if straggler.until is None else straggler.until
        evicted = straggler.detected is not None and straggler.from_ + straggler.detected < end
        if straggler.detected is not None and evicted:
            end = straggler.from_ + straggler.detected
        start = straggler.from_
        rise = min(straggler.ramp, end - start)
        for piece in range(RAMP if rise > 0 else 0):
            part = 1 + (factor - 1) * (piece + 0.5) / RAMP
            begin, stop = start + rise * piece / RAMP, start + rise * (piece + 1) / RAMP
            slowed.append(Slow(begin, stop, part, straggler=number))
        slowed.append(Slow(start + rise, end, factor, evicted, number))
    return slowed


def _factor(prediction: Prediction, plan: Plan, straggler: TimedStraggler, where: str) -> float:
    """Time of a step with the straggler over that of a healthy one."""
    setting, step = prediction.setting, float(prediction.step.time[0])
    factor = 1.0
    if straggler.slowdown > 1 or straggler.bandwidth < 1:
        same = {name: getattr(straggler, name) for name in Straggler.model_fields}
        try:
            check_stragglers([straggler], plan, where)
        except InputError as error:
            raise InputError(error.problem, error.where.replace(f"{where}.0", where)) from None
        timed = [
            simulate_plan(replace(setting, stragglers=each), plan, engine=True)
            for each in ((), (Straggler(**same),))
        ]
        healthy, slow = (run.timeline.period for run in timed if run.timeline is not None)
        factor = slow / healthy
    if straggler.noise is not None:
        draws = straggler.noise.draw(np.random.default_rng(0), SAMPLES)
        ranks = min(straggler.replicas, plan.data)
        factor += slowest_of_iid(draws, ranks) / step
    return factor


def shrunk_speeds(
    setting: Setting, request: AskedRun, best: Callable[[Setting], float | None], tokens_per_s: float
) -> list[float]:
    """Speeds of the best plans with fewer nodes over that of all nodes, from one missing node.

    A number of nodes without a plan is as fast as the next smaller one.

    Args:
        setting: of the whole job.
        request: its run; only `elastic: {replan: NODES}` needs speeds.
        best: tokens per second of the best plan of a setting; None where none fits.
        tokens_per_s: of the whole job's plan.
    """
    elastic = request.question.elastic
    if not isinstance(elastic, Replan):
        return []
    cluster, width = setting.cluster, setting.cluster.devices_per_node
    nodes = cluster.nodes_for(cluster.devices)
    speeds: list[float] = []
    for missing in range(1, elastic.replan + 1):
        left, rate = nodes - missing, None
        while left > 0 and rate is None:
            rate = best(replace(setting, cluster=cluster.resized(left * width)))
            left -= 1
        if rate is None:
            raise InputError(
                f"no plan fits on fewer than {nodes - missing + 1} nodes", f"{request.where}.elastic.replan"
            )
        speeds.append(min(rate / tokens_per_s, 1.0))
    return speeds
