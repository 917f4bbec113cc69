"""The Python API of serving plans: deployments, mixes of GPU types, fronts, and replicas over a day."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Unpack

from core.errors import InputError
from meshwright.api.serving_answers import DayAnswer, FrontsAnswer, MixAnswer
from meshwright.deployments import DeploymentSearch, deploy, deployment_question, power_budget
from meshwright.questions.arguments import (
    DayArguments,
    FrontArguments,
    MixArguments,
    check_names,
)
from meshwright.questions.numbers import day_rates
from meshwright.questions.references import Reference
from meshwright.result_base import as_answer
from planner.pareto import Fronts
from planner.serving.day import DayPlan, DayRun, plan_day, run_day
from planner.serving.fronts import serving_fronts
from planner.serving.mix.search import Mix, search_mix
from planner.serving.offers import Offer
from planner.serving.question import ServingQuestion
from planner.serving.shapes import ReplicaShape
from simulator.serving.workload.arrivals.piecewise import Piecewise

__all__ = ["DayPlan", "DayRun", "DeploymentSearch", "Fronts", "Mix", "day", "deploy", "mix", "serving_front"]


def _one_type(question: ServingQuestion, what: str) -> None:
    """Refuse several GPU types.

    Raises:
        InputError: there are several.
    """
    if len(question.types) > 1:
        names = ", ".join(offer.name for offer in question.types)
        raise InputError(f"{what} is of one GPU type, found {names}; ask for each", "cluster")


def mix(
    types: Sequence[str] | str,
    scenario: Reference | None = None,
    *,
    split: bool = True,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[MixArguments],
) -> MixAnswer:
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
    offers = [Offer.parse(text) for text in (types.split(",") if isinstance(types, str) else types)]
    cluster, watts = offers[0].cluster, power_budget(values.pop("watts"))
    values |= {"cluster": cluster.name, "gpus": cluster.domain, "objective": "cost"}
    question = deployment_question(scenario, values, split)
    return as_answer(MixAnswer, search_mix(question, offers, watts=watts, progress=progress))


def serving_front(
    scenario: Reference | None = None,
    *,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[FrontArguments],
) -> FrontsAnswer:
    """Pareto fronts of one replica: throughput, cost and energy against tokens/s per user.

    Args:
        scenario: a serving scenario (file, shipped name or mapping); ``arguments`` replace its keys.
        progress: called with the finished share.
        arguments: see ``FrontArguments``; ``gpus`` is the maximum of a replica.

    Raises:
        InputError: a wrong or unknown argument.
        InfeasibleError: no replica fits.
    """
    from meshwright.reports.serving_evidence import shape_errors

    values = check_names(arguments, FrontArguments, inspect.signature(serving_front).parameters)
    # The rate is not read: every point has its own concurrency.
    question = deployment_question(scenario, {**values, "rate": 1.0, "objective": "cost"})
    _one_type(question, "a front")

    def error(shape: ReplicaShape) -> float | None:
        expected = shape_errors(question, shape).get("tpot")
        return None if expected is None else expected.p90

    return as_answer(FrontsAnswer, serving_fronts(question, progress, error))


def day(
    scenario: Reference | None = None,
    *,
    rates: Sequence[float] | str,
    cold_start: float = 60.0,
    refine: bool = False,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[DayArguments],
) -> tuple[DayAnswer, list[DayRun]]:
    """Plan replicas for given rates over a day: the cheapest shape and timetable.

    Args:
        scenario: a serving scenario (file, shipped name or mapping); ``arguments`` replace its keys.
        rates: requests a second in equal parts of 24 hours, as a list or "2,5,9".
        cold_start: seconds from renting a replica to its first request.
        refine: run the timetable, autoscaling and a fixed count on the event engine too.
        progress: called with the finished share of the runs on the event engine.
        arguments: see ``DayArguments``.

    Raises:
        InputError: a wrong or unknown argument.
        InfeasibleError: no replica meets the targets, or the devices do not carry the highest rate.
    """
    values = check_names(arguments, DayArguments, inspect.signature(day).parameters)
    rates = day_rates(rates) if isinstance(rates, str) else rates
    question = deployment_question(scenario, {**values, "rate": max(rates), "objective": "cost"})
    _one_type(question, "a day")
    arrivals = Piecewise(period=86_400 / len(rates), rates=list(rates))
    workload = question.workload.model_copy(update={"arrivals": arrivals})
    timetable = plan_day(replace(question, workload=workload, split=False), cold_start)
    runs = list(run_day(timetable, progress)) if refine else []
    return as_answer(DayAnswer, timetable, runs=runs), runs
