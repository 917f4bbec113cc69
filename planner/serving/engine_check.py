"""The first deployments of a search on the event engine: a look by default, where it takes below a second.

One seed and an interval of 5 %. Where the engine finds another rate than the steady state by more than the
printed error, its rate replaces the deployment's and the ranking follows. Where no rate is asked for, none is
told whose run missed the targets: the lower end of the interval, which held, takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import MeshwrightError
from planner.serving.alternatives import FIRST, NEXT, STEADY_ERROR
from planner.serving.deployment import scenario_of
from planner.serving.engine_run import latencies, trial_run
from planner.serving.largest_rate import Bracket, Steps, bracket
from planner.serving.plan import ServingPlan
from planner.serving.preferred import Measured, measured_rows, mechanisms, preferred
from planner.serving.question import ServingQuestion
from planner.serving.refine import RefinedServing, closed_rate, lifetime, longer, settled
from planner.serving.replica_cases import ReplicaCases
from planner.serving.search import ServingSearch
from planner.serving.search_tables import PricedTables
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting

CHECKED = 3
"""Deployments that are run."""
LOOK = Steps(factor=1.05, close=0.05, runs=12, short=4, follow=True, with_warm_up=True)
"""Trial rates: a run that fails ends early, so that short steps downwards cost little."""
SAME_RATE = 1e-9
"""Relative distance below which two rates are one."""
MOST_REQUESTS = 10_000
"""Requests of one run of each deployment, in all: below a second with two or three rates each."""
MOST_ALONE = 20_000
"""Requests of one run of the first deployment, where all would take more than `MOST_REQUESTS`. Others run as
they come to rank first."""


@dataclass(frozen=True, eq=False)
class Check:
    """Deployments after the look.

    Attributes:
        search: with rates replaced where the engine contradicts them.
        runs: rates found, by the number of the deployment.
        replaced: deployments as the steady state had them, with the number that they have now.
        skipped: requests of a run of each, where those of the first are too many for a look.
    """

    search: ServingSearch
    runs: Mapping[int, RefinedServing]
    replaced: Sequence[tuple[ServingPlan, int]] = ()
    skipped: int = 0


def check(search: ServingSearch, measured: Measured | None = None) -> Check:
    """Run the first deployments, and rank them by what the engine finds.

    Args:
        search: a search without runs.
        measured: what measured servers say of deployments, to choose the first.
    """
    question, plans = search.question, list(search.plans)
    if not question.workload.slo.has_targets:
        return Check(search, {})
    settings = [_setting(question, plan) for plan in plans[:CHECKED]]
    requests = [run.serving.requests if isinstance(run, ServingSetting) else 0 for run in settings]
    together = sum(requests) <= MOST_REQUESTS
    if not together and requests[0] > MOST_ALONE:
        return Check(search, {}, skipped=sum(requests))
    after, order, runs = list(plans), list(range(len(plans))), dict[int, RefinedServing]()
    waiting = list(range(len(settings))) if together else [0]
    while waiting:
        for number in waiting:
            setting, plan = settings[number], plans[number]
            runs[number], interval = _run(setting, plan, question.rate)
            after[number] = _followed(plan, runs[number], setting, question, interval)
        if any(after[number] is not plans[number] for number in waiting):
            order = _ranked(after, question, measured)
        first = order[0]
        runs_next = first < len(settings) and first not in runs and requests[first] <= MOST_ALONE
        waiting = [first] if runs_next else []
    at = {number: place for place, number in enumerate(order)}
    reordered = [(old, at[number]) for number, old in enumerate(plans) if after[number] is not old]
    ranked = replace(
        search,
        plans=[after[number] for number in order],
        reasons=_reasons(search.reasons, order),
    )
    return Check(ranked, {at[number]: run for number, run in runs.items()}, reordered)


def _ranked(plans: Sequence[ServingPlan], question: ServingQuestion, measured: Measured | None) -> list[int]:
    """Numbers of the deployments: the one to launch, then the others, the best first."""
    ranks = [_rank(plan, question) for plan in plans]
    order = sorted(range(len(plans)), key=ranks.__getitem__)
    if measured is None:
        return order
    sure = [number for number in order if ranks[number][:-1] == ranks[order[0]][:-1]]
    first = sure[
        preferred(
            np.array([ranks[number][-1] for number in sure], float),
            np.array([len(mechanisms(plans[number])) for number in sure]),
            np.array([measured_rows(plans[number], measured) for number in sure]),
            measured.band,
        )
    ]
    return [first, *(number for number in order if number != first)]


def _setting(question: ServingQuestion, plan: ServingPlan) -> ServingSetting | MeshwrightError:
    """The run of a deployment, or the reason why it has none."""
    try:
        tables = PricedTables([group.shape for group in plan.groups], question.sample)
        setting = make_serving(scenario_of(question, plan), "plan", question.folder or Path(), tables)
    except MeshwrightError as error:
        return error
    return settled(setting, plan.goodput * lifetime(question, plan))


def _run(
    setting: ServingSetting | MeshwrightError, plan: ServingPlan, natural: float | None
) -> tuple[RefinedServing, Bracket | None]:
    """The largest rate of a deployment: middle and half width of the interval, and the interval."""
    if isinstance(setting, MeshwrightError):
        return RefinedServing(0.0, 0.0, str(setting)), None
    try:
        arrivals = setting.serving.arrivals
        if arrivals is not None and arrivals.closed:
            rate = closed_rate(setting)
            return RefinedServing(rate, 0.5 * LOOK.close * rate), None
        interval = bracket(setting, plan.goodput, natural, LOOK)
        if interval.low > plan.goodput * (1.0 + STEADY_ERROR):
            interval = _confirmed(setting, interval, plan.goodput, natural)
    except MeshwrightError as error:
        return RefinedServing(0.0, 0.0, str(error)), None
    return RefinedServing(
        0.5 * (interval.low + interval.high), 0.5 * (interval.high - interval.low)
    ), interval


def _confirmed(setting: ServingSetting, interval: Bracket, expected: float, natural: float | None) -> Bracket:
    """An interval above the steady state's rate, lowered until a longer run holds.

    A short run ends before a queue that grows by a few percent of the arrivals breaks a target.
    """
    low, high, confirming = interval.low, interval.high, longer(setting)
    while low > expected:
        run = trial_run(confirming, low, natural)
        if run.holds:
            return Bracket(low, high, run)
        low, high = max(low * (1.0 - LOOK.close), expected), low
    return Bracket(low, high, None)


def _reasons(reasons: Sequence[str], order: Sequence[int]) -> list[str]:
    """Why each deployment is shown: the first choice is the one that ranks first now."""
    if not order:
        return []
    words = [NEXT if reasons[number] == FIRST else reasons[number] for number in order]
    return [FIRST, *words[1:]]


def _followed(
    plan: ServingPlan,
    run: RefinedServing,
    setting: ServingSetting | MeshwrightError,
    question: ServingQuestion,
    interval: Bracket | None = None,
) -> ServingPlan:
    """The deployment with the engine's rate, latencies and power where its rate contradicts its own.

    All of its figures are at one rate: the one asked for, or, where it carries less, what it carries.
    """
    rate, closed, goodput, ran = question.rate, question.concurrency is not None, run.goodput, None
    misses = False
    if rate is None and interval and interval.run:
        # The rate is what the answer tells: one that a run has carried.
        goodput, ran = interval.low, interval.run.latencies
        misses = plan.goodput >= interval.high * (1.0 - SAME_RATE)
    if run.problem or isinstance(setting, MeshwrightError) or not (misses or contradicts(plan, run)):
        return plan
    demand = plan.load if rate is None else rate
    load = min(demand, goodput) if goodput > 0 else demand
    corrected = replace(plan, goodput=goodput, load=load, output_tokens_s=max(load * question.output, 1e-9))
    corrected = replace(corrected, meets=goodput > 0 and (rate is None or rate <= goodput))
    if closed:
        return corrected
    if ran is None or load < goodput:
        ran = latencies(setting, load, rate)
    return replace(
        corrected, ttft_s=ran.ttft_s, tpot_s=ran.tpot_s, e2e_s=ran.e2e_s, watts=_watts(corrected, question)
    )


def _watts(plan: ServingPlan, question: ServingQuestion) -> float:
    """Power of the devices at the deployment's load, W."""
    watts = 0.0
    for group in plan.groups:
        state = ReplicaCases.of_group(question, group).state(np.array([plan.load / group.replicas]))
        watts += group.replicas * (float(state.watts[0]) + group.shape.idle_watts_beside)
    return watts


def contradicts(plan: ServingPlan, run: RefinedServing) -> bool:
    """Whether the engine's interval misses the steady state's rate by more than its error."""
    lowest, highest = run.goodput - run.half_width, run.goodput + run.half_width
    return plan.goodput > highest * (1.0 + STEADY_ERROR) or plan.goodput < lowest / (1.0 + STEADY_ERROR)


def _rank(plan: ServingPlan, question: ServingQuestion) -> tuple[Any, ...]:
    """Those that meet the targets first, without assumed acceptance before others, then by the figure."""
    drafts = plan.groups[-1].shape.pool.speculation
    guessed = drafts is not None and drafts.assumed and "speculation" not in question.fix
    figure = plan.figure(question.objective)
    return not plan.meets, guessed, -figure if question.objective == "goodput" else figure
