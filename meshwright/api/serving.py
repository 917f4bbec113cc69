"""The Python API of serving plans: deployments, mixes of GPU types, fronts, and replicas over a day."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from core.errors import InfeasibleError, InputError
from meshwright.measured_servers import rows_of_layouts
from meshwright.questions.arguments import (
    DayArguments,
    DeployArguments,
    MixArguments,
    ReplicaArguments,
    check_names,
)
from meshwright.questions.references import Reference
from meshwright.questions.serving import serving_question
from meshwright.results import check_rank
from meshwright.shown import Shown
from planner.execution import Execution
from planner.pareto import Fronts
from planner.serving.checked import Check, check
from planner.serving.day import DayPlan, DayRun, plan_day, run_day
from planner.serving.deployment import scenario_of
from planner.serving.fronts import serving_fronts
from planner.serving.mix.search import Mix, search_mix
from planner.serving.offers import Offer
from planner.serving.plan import ServingPlan
from planner.serving.policies import PolicySearch, try_policies, with_policies
from planner.serving.question import ServingQuestion
from planner.serving.refine import RefinedServing, refine_serving
from planner.serving.search import ServingSearch, search_serving
from simulator.serving.engines import engines
from simulator.serving.workload.arrivals.piecewise import Piecewise

MOST_WATTS = 1e12

__all__ = ["DayPlan", "DayRun", "DeploymentSearch", "Fronts", "Mix", "day", "deploy", "mix", "serving_front"]


@dataclass(frozen=True, eq=False, repr=False)
class DeploymentSearch(Shown):
    """The best deployments, and the highest rates found on the event engine by their index."""

    search: ServingSearch
    refined: Mapping[int, RefinedServing] = field(default_factory=dict)
    interrupted: bool = False
    """Whether Ctrl-C ended the event engine's runs early."""
    policies: PolicySearch | None = None
    """Policies tried around the first deployment, on the event engine."""
    look: Check | None = None
    """What the event engine said of the first deployments by default."""

    def _tables(self) -> Sequence[Any]:
        if not self.search.plans:
            return ["no deployment meets the targets"]
        from meshwright.reports.serving_plans import deployment_tables

        return deployment_tables(self.search, self.refined, self.look)

    @property
    def best(self) -> ServingPlan:
        """The first deployment.

        Raises:
            InfeasibleError: no deployment meets the targets.
        """
        if not self.search.plans:
            raise InfeasibleError("no deployment meets the targets")
        return self.search.plans[0]

    def scenario(self, index: int = 0) -> dict[str, Any]:
        """A deployment as a scenario that ``simulate`` reads, with the best of the policies that were tried.

        Raises:
            InputError: the search returned fewer deployments.
        """
        check_rank(index, len(self.search.plans))
        deployed = scenario_of(self.search.question, self.search.plans[index])
        return deployed if self.policies is None else with_policies(deployed, self.policies.best.policies)


def deploy(
    scenario: Reference | None = None,
    *,
    split: bool = True,
    top: int = 5,
    refine: int | None = None,
    tries: Mapping[str, Sequence[Any]] | None = None,
    execution: Execution | None = None,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[DeployArguments],
) -> DeploymentSearch:
    """Search deployments for the lowest cost, energy or latency at a rate, or for the highest goodput.

    Where nothing carries the rate, the deployments are those that carry most, at the rate that they carry.

    Args:
        scenario: a serving scenario (file, shipped name or mapping); ``arguments`` replace its keys.
        split: try separate pools for prefill and decode too.
        top: deployments to return.
        refine: number of best deployments whose highest rate the event engine finds too; by default a look
            at three (``planner.serving.checked``) where that takes below a second.
        tries: values of policies by key of the deployment (``planner.serving.policies.TRIED``; None goes
            without), tried around the first deployment on the event engine.
        execution: where the event engine runs, and the store of its results; by default all cores.
        progress: called with the finished share.
        arguments: see ``DeployArguments``.

    Raises:
        InputError: a wrong or unknown argument.
        InfeasibleError: no replica fits.
    """
    values = check_names(arguments, DeployArguments, inspect.signature(deploy).parameters)
    question = _question(scenario, values, split)
    proof = rows_of_layouts(question.model.name, engines.get(question.engine).engine)
    ranking = search_serving(question, max(top, refine or 0), progress, formats=True, proof=proof)
    if question.unasked and not ranking.plans and ranking.nearest is not None and ranking.nearest.goodput > 0:
        # Nothing carries the rate: what carries most, at the rate that it carries.
        most = replace(question, objective="goodput")
        ranking = search_serving(most, max(top, refine or 0), progress, formats=True, proof=proof)
    look = check(ranking) if refine is None else Check(ranking, {})
    ranking, runs = look.search, dict(look.runs)
    interrupted = False
    try:
        for number, run in refine_serving(question, ranking.plans[: refine or 0], execution or Execution()):
            runs[number] = run
    except KeyboardInterrupt:
        interrupted = True
    policies = None
    if tries and ranking.plans and not interrupted:
        policies = try_policies(question, ranking.plans[0], tries, execution or Execution())
    return DeploymentSearch(ranking, runs, interrupted, policies, look)


def _budget(watts: float | None) -> float | None:
    """A power budget, W.

    Raises:
        InputError: not a positive number, or too large.
    """
    if watts is not None and not 0 < watts < MOST_WATTS:
        raise InputError(f"must be above 0 and below {MOST_WATTS:g} W, found {watts:g}", "watts")
    return watts


def _one_type(question: ServingQuestion, what: str) -> None:
    """Refuse several GPU types.

    Raises:
        InputError: there are several.
    """
    if len(question.types) > 1:
        names = ", ".join(offer.name for offer in question.types)
        raise InputError(f"{what} is of one GPU type, found {names}; ask for each", "cluster")


def mix(
    types: Sequence[str],
    scenario: Reference | None = None,
    *,
    split: bool = True,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[MixArguments],
) -> Mix:
    """Rent the cheapest mix of GPU types that carries a load within its targets.

    Args:
        types: devices or clusters, each ``NAME``, ``NAME=COUNT`` (devices available) or ``NAME=COUNT@PRICE``
            ($ an hour and device).
        scenario: a serving scenario (file, shipped name or mapping), whose distributions of lengths or trace
            fill the buckets; ``arguments`` replace its keys.
        split: let prompts and outputs of a request run on different replicas, of any two types, too.
        progress: called with the finished share.
        arguments: see ``MixArguments``.

    Raises:
        InputError: a wrong or unknown argument, or PuLP and HiGHS are not installed.
        InfeasibleError: no mix carries the load.
    """
    values = check_names(arguments, MixArguments, inspect.signature(mix).parameters)
    offers = [Offer.parse(text) for text in types]
    cluster, watts = offers[0].cluster, _budget(values.pop("watts"))
    values |= {"cluster": cluster.name, "gpus": cluster.domain, "objective": "cost"}
    return search_mix(_question(scenario, values, split), offers, watts=watts, progress=progress)


def serving_front(
    scenario: Reference | None = None,
    *,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[ReplicaArguments],
) -> Fronts:
    """Pareto fronts of one replica: throughput, cost and energy against tokens/s per user.

    Args:
        scenario: a serving scenario (file, shipped name or mapping); ``arguments`` replace its keys.
        progress: called with the finished share.
        arguments: see ``ReplicaArguments``; ``gpus`` is the maximum of a replica.

    Raises:
        InputError: a wrong or unknown argument.
        InfeasibleError: no replica fits.
    """
    values = check_names(arguments, ReplicaArguments, inspect.signature(serving_front).parameters)
    # The rate is not read: every point has its own concurrency.
    question = _question(scenario, {**values, "rate": 1.0, "objective": "cost"})
    _one_type(question, "a front")
    return serving_fronts(question, progress)


def day(
    scenario: Reference | None = None,
    *,
    rates: Sequence[float],
    cold_start: float = 60.0,
    refine: bool = False,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[DayArguments],
) -> tuple[DayPlan, list[DayRun]]:
    """Plan replicas for given rates over a day: the cheapest shape and timetable.

    Args:
        scenario: a serving scenario (file, shipped name or mapping); ``arguments`` replace its keys.
        rates: requests a second in equal parts of 24 hours.
        cold_start: seconds from renting a replica to its first request.
        refine: run the timetable, autoscaling and a fixed count on the event engine too.
        progress: called with the finished share of the runs on the event engine.
        arguments: see ``DayArguments``.

    Raises:
        InputError: a wrong or unknown argument.
        InfeasibleError: no replica meets the targets, or the devices do not carry the highest rate.
    """
    values = check_names(arguments, DayArguments, inspect.signature(day).parameters)
    question = _question(scenario, {**values, "rate": max(rates), "objective": "cost"})
    _one_type(question, "a day")
    arrivals = Piecewise(period=86_400 / len(rates), rates=list(rates))
    workload = question.workload.model_copy(update={"arrivals": arrivals})
    timetable = plan_day(replace(question, workload=workload, split=False), cold_start)
    return timetable, list(run_day(timetable, progress)) if refine else []


def _question(scenario: Reference | None, values: Mapping[str, Any], split: bool = True) -> ServingQuestion:
    """The checked question of arguments; those that its function has not are left out."""
    values = {**check_names({}, DeployArguments), **values}
    fix, limit, watts = values.pop("fix"), values.pop("limit"), _budget(values["watts"])
    question = serving_question(scenario, {**values, "watts": watts}, fix or {}, limit or {})
    return replace(question, split=split and question.concurrency is None)
