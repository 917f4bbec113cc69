"""What the event engine said of a search's first deployments."""

from __future__ import annotations

from typing import Any

from meshwright.reports.units import per_second, percent
from planner.serving.engine_check import CHECKED, Check
from planner.serving.lasting import requests_in_graphs
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.search import ServingSearch

LONGEST = 1e7
"""Requests after which no replica is expected to run on as it was."""


def describe_check(look: Check | None) -> dict[str, Any]:
    """Deployments whose rates the engine replaced, with documented keys; nothing where none was."""
    if look is None or not look.replaced:
        return {}
    sentences = [
        {
            "rank": 1 + place,
            "deployment": plan.describe(),
            "steady_goodput_requests_s": plan.goodput,
            "goodput_requests_s": look.search.plans[place].goodput,
        }
        for plan, place in look.replaced
    ]
    return {"replaced_by_engine": sentences}


def checked_words(look: Check | None) -> list[str]:
    """A line for each deployment whose rate the engine replaced, or why none was run."""
    if look is None:
        return []
    if look.skipped:
        return [
            f"Not run on the event engine: a run of the first {CHECKED} takes {look.skipped:,} requests; "
            f"--refine {CHECKED} runs them."
        ]
    return [
        f"The event engine contradicts {plan.describe()}: {_engine_rate(look, place)}, where "
        f"the steady state has {_rate(plan.goodput)} "
        f"({_gap(look.search.plans[place].goodput, plan.goodput)}). "
        f"Its rate is the goodput; it ranks {1 + place}."
        for plan, place in look.replaced
    ]


def describe_graphs(question: ServingQuestion, plan: ServingPlan) -> dict[str, Any]:
    """The key of a deployment whose decodes leave the captured graphs in time; none of another."""
    count = requests_in_graphs(question, plan)
    return {"requests_in_graphs": count} if count < LONGEST else {}


def graphs_words(search: ServingSearch) -> list[str]:
    """A line for each deployment whose decodes leave the captured graphs in time."""
    left = {plan.describe(): describe_graphs(search.question, plan) for plan in search.plans}
    return [
        f"{words} has two states at its rate: its batches outgrow the captured graphs after about "
        f"{float(f'{count:.2g}'):,.0f} requests, and decodes are slower from then on."
        for words, key in left.items()
        for count in key.values()
    ]


def _engine_rate(look: Check, place: int) -> str:
    """The rate that stands for a deployment: the lower end of the engine's interval where a run held it."""
    goodput, run = look.search.plans[place].goodput, look.runs.get(place)
    lower = run is not None and 0.0 < goodput < run.goodput
    return f"{_rate(goodput)}{', the lower end of its interval' if lower else ''}"


def _rate(goodput: float) -> str:
    return f"{per_second(goodput)} requests/s" if goodput > 0 else "no rate within the targets"


def _gap(simulated: float, steady: float) -> str:
    change = simulated / steady - 1.0
    return f"{percent(abs(change), 0)} {'more' if change > 0 else 'less'}"
