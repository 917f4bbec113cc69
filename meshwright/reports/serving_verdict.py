"""The first deployment in two lines: what it carries, on which evidence, and what one gives up with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.reports.serving_evidence import plan_errors, short_evidence
from meshwright.reports.tables import fitted
from meshwright.reports.units import per_second, percent, seconds, significant
from planner.serving.alternatives import FIRST, STEADY_ERROR
from planner.serving.plan import ServingPlan
from planner.serving.preferred import EVEN, lead, mechanisms
from planner.serving.search import ServingSearch

EQUAL = 5e-4
"""Precision of the largest rates, relative."""
WORSE = {
    "goodput": "carries {} less than rank {}",
    "cost": "costs {} more a token than rank {}",
    "energy": "takes {} more energy a token than rank {}",
    "latency": "takes {} longer than rank {}",
}
"""Gap of a plan to another, by objective."""


def serving_headline(search: ServingSearch) -> list[str]:
    """The first deployment, and how many others are as good; without plans nothing."""
    if not search.plans:
        return []
    question, plan = search.question, search.plans[0]
    error = plan_errors(search, plan).get("tpot")
    share = f"p{100 * question.workload.slo.share:.3g}"
    gpus = "1 GPU" if plan.devices == 1 else f"{plan.devices:,} GPUs"
    tokens = "input" if prompts_only(search) else "output"
    parts = [
        f"{plan.describe()}: {per_second(plan.goodput)} req/s on {gpus}",
        f"TTFT {seconds(plan.ttft_s)} ({share})",
        ""
        if prompts_only(search)
        else f"TPOT {seconds(plan.tpot_s)}" + ("" if error is None else f" ± {percent(error.p90, 0)}"),
        f"{significant(usd_per_million(search, plan))} $/Mtok of {tokens}" if plan.usd_per_hour else "",
        short_evidence(search, plan),
    ]
    return ["\n".join(fitted(list(filter(None, parts)), _as_good(search)))]


def prompts_only(search: ServingSearch) -> bool:
    """Whether requests end with their prompt's pass: embeddings, whose tokens are those of prompts."""
    return search.question.output <= 1.0


def tokens_s(search: ServingSearch, plan: ServingPlan) -> float:
    """Tokens a second that a deployment is paid for: of outputs, or of prompts where these are all."""
    return plan.load * search.question.prompt if prompts_only(search) else plan.output_tokens_s


def usd_per_million(search: ServingSearch, plan: ServingPlan) -> float:
    """Dollars of a million of these tokens."""
    rate = tokens_s(search, plan)
    return plan.usd_per_million * plan.output_tokens_s / rate if rate else plan.usd_per_million


def money_words(search: ServingSearch) -> str:
    """What the dollars of the first plan buy; empty without a price."""
    if not search.plans or not search.plans[0].usd_per_hour:
        return ""
    question, plan = search.question, search.plans[0]
    request = plan.usd_per_million * question.output / 1e6
    thousand = f"{significant(1000 * request)} $ for 1,000 requests"
    if prompts_only(search):
        return f"counts prompt tokens at the rate of the row; rank 1: {thousand}"
    if not question.model.decoder_only:
        return (
            f"counts the decoder's tokens at the rate of the row, not what the encoder reads; rank 1: "
            f"{thousand}"
        )
    both = 1e6 * request / (question.prompt + question.output)
    return (
        f"counts output tokens at the rate of the row; rank 1: {significant(both)} $/Mtok of input and "
        f"output, {thousand}"
    )


def _as_good(search: ServingSearch) -> list[str]:
    """How many of the deployments shown are as good as the first, and what it gives up."""
    gaps = gaps_of(search)
    close = sum(gap <= gaps[0] + EVEN for gap in gaps[1:])
    good = f"{close} other{'s are' if close > 1 else ' is'} as good within error." if close else ""
    return list(filter(None, [good, _gives_up(search, gaps)]))


def gaps_of(search: ServingSearch) -> list[float]:
    """What each deployment shown gives up to the best of them, as a share."""
    objective = search.question.objective
    sign = -1.0 if objective == "goodput" else 1.0
    values = np.array([sign * plan.figure(objective) for plan in search.plans])
    return lead(values).tolist() if values.all() else [0.0] * len(values)


def _gives_up(search: ServingSearch, gaps: Sequence[float]) -> str:
    """What one gives up with the first deployment; empty where it is the best, and none is as good."""
    plans, objective = search.plans, search.question.objective
    best = int(np.argmin(gaps))
    if gaps[0] > EQUAL:
        why = f", whose {_named(plans[best])} no measured server has" if mechanisms(plans[best]) else ""
        return f"Rank 1 {WORSE[objective].format(percent(gaps[0]), best + 1)}{why}."
    needs = len(mechanisms(plans[0]))
    equal = (rank for rank, gap in enumerate(gaps[1:], 2) if gap <= EQUAL)
    rank = next((rank for rank in equal if len(mechanisms(plans[rank - 1])) > needs), None)
    return "" if rank is None else f"Rank {rank} needs {_named(plans[rank - 1])} for the same {objective}."


def _named(plan: ServingPlan) -> str:
    return " and ".join(mechanisms(plan))


def gap_words(objective: str, gap: float) -> str:
    """What the second plan gives up to the first in a sentence.

    Args:
        objective: of the search.
        gap: a share, above 0.
    """
    words = f"Rank 2 {WORSE[objective].format(percent(gap), 1)}"
    if gap < STEADY_ERROR:
        return f"{words}: too close to tell apart; --refine 2 runs both on the event engine."
    return f"{words}."


def reason_words(search: ServingSearch, why: str, plan: ServingPlan) -> str:
    """Rank of a deployment, and its figure over the first's."""
    objective, first = search.question.objective, search.plans[0]
    share = plan.figure(objective) / max(first.figure(objective), 1e-12)
    rank = 1 + list(search.plans).index(plan)
    return "" if why == FIRST else f"rank {rank}, {percent(share, 0)} of rank 1's {objective}"
