"""Why no deployment carries the load, or meets the targets, and what would help."""

from __future__ import annotations

from math import ceil

from meshwright.reports.serving_verdict import EQUAL
from meshwright.reports.units import per_second, seconds
from planner.serving.plan import ServingPlan
from planner.serving.search import ServingSearch


def falls_short(search: ServingSearch) -> bool:
    """Whether the rate is stated and the first deployment carries less."""
    rate = search.question.rate
    return rate is not None and bool(search.plans) and search.plans[0].goodput < rate * (1.0 - EQUAL)


def shortfall_words(search: ServingSearch, plan: ServingPlan) -> str:
    """The rate carried of the rate asked, and what would carry the rest."""
    question = search.question
    rate = question.rate or 0.0
    needed = ceil(plan.devices * rate / plan.goodput)
    formats = ", ".join(
        f"{number_format} ({names[0]})"
        for number_format, names in question.model.checkpoints.items()
        if number_format not in stored_formats(plan)
    )
    other = f", another checkpoint: {formats}" if formats else ", narrower weights"
    return (
        f"no deployment meets the targets at {rate:g} requests/s; {plan.describe()} carries most, "
        f"{per_second(plan.goodput)} requests/s on {plan.devices:,} GPU{'s' * (plan.devices > 1)} "
        f"(about {needed:,} would carry the load); more or faster devices, a lower rate{other} or wider "
        "targets would help"
    )


def stored_formats(plan: ServingPlan) -> set[str]:
    """Number formats of a plan's weights."""
    return {group.shape.pool.stored for group in plan.groups}


def nearest_words(search: ServingSearch) -> str:
    """Reason why no deployment meets the targets, and the best latency available."""
    plan, slo = search.nearest, search.question.workload.slo
    if plan is None:
        return "no deployment meets the targets"
    load = search.question.rate
    if load is not None and 0 < plan.goodput < load:
        return shortfall_words(search, plan)
    missed = []
    if slo.ttft is not None and plan.ttft_s > slo.ttft:
        missed.append(f"TTFT {seconds(plan.ttft_s)} (target {seconds(slo.ttft)})")
    if slo.tpot is not None and plan.tpot_s > slo.tpot:
        missed.append(f"TPOT {seconds(plan.tpot_s)} (target {seconds(slo.tpot)})")
    if slo.e2e is not None and plan.e2e_s > slo.e2e:
        missed.append(f"e2e {seconds(plan.e2e_s)} (target {seconds(slo.e2e)})")
    rate = search.question.rate
    demand = "" if rate is None else f" at {rate:g} requests/s"
    clients = search.question.concurrency
    if clients is not None:
        demand = f" with {clients:,} requests in flight"
    fewer = "a lower rate" if clients is None else "fewer clients"
    return (
        f"no deployment meets the targets{demand}; the best is {plan.describe()} with "
        f"{', '.join(missed) or 'a queue that grows without end'}{_floor(search)}; more devices, "
        f"{fewer}, narrower weights or wider targets would help"
    )


def _floor(search: ServingSearch) -> str:
    """The least latency of a lone request, where a target is below it."""
    slo = search.question.workload.slo
    if search.fastest is None:
        return ""
    plan, first, token = search.fastest
    if first <= (slo.ttft or first) and token <= (slo.tpot or token):
        return ""
    least = f"TTFT {seconds(first)} and TPOT {seconds(token)}"
    return f"; a lone request takes {least} on {plan.describe()}, the fastest"
