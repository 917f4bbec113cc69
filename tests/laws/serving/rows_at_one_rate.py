"""Price, tokens and latencies of a row are at one rate, and the first choice is the first row."""

from math import isclose

import numpy as np

from meshwright.questions.serving import serving_question
from planner.serving.alternatives import FIRST
from planner.serving.engine_check import check as look
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import ReplicaCases, ttft_quantile
from planner.serving.search import search_serving
from tests.laws.questions import Question, strategy
from tests.laws.serving.price_as_asked import rated, with_a_rate

NUMBER = 38
QUESTIONS = strategy(with_a_rate)
SEARCHES = True
CI = 1
LAST_BITS = 1e-6


def check(question: Question) -> None:
    """Look at the rows of a search at a rate, before and after the event engine has run the first of them."""
    asked = serving_question(None, rated(question), {}, {})
    found = search_serving(asked, 4)
    for plan in found.plans:
        _at_its_rate(plan, asked)
        if len(plan.groups) == 1:
            _waits_at_its_rate(plan, asked)
    looked = look(found).search
    for plan in looked.plans:
        _at_its_rate(plan, asked)
    for search in (found, looked):
        assert search.reasons[0] == FIRST, f"the first row is labelled {search.reasons[0]!r}"
        assert FIRST not in search.reasons[1:], "two rows are the first choice"
        assert search.plans[0].meets or not any(plan.meets for plan in search.plans), (
            f"{search.plans[0].describe()} misses the rate and stands before a row that carries it"
        )


def _at_its_rate(plan: ServingPlan, asked: ServingQuestion) -> None:
    """Refuse tokens or a price at another rate than the row's, or a rate that the row does not carry."""
    words = plan.describe()
    carried = min(asked.rate or plan.goodput, plan.goodput or plan.load)
    assert isclose(plan.load, carried, rel_tol=LAST_BITS), (
        f"{words} carries {carried:.6g} requests/s, its row is at {plan.load:.6g}"
    )
    tokens = plan.load * asked.output
    assert isclose(plan.output_tokens_s, tokens, rel_tol=LAST_BITS), (
        f"{words}: {plan.output_tokens_s:.6g} tokens/s, its rate gives {tokens:.6g}"
    )
    price = sum(group.devices for group in plan.groups) * asked.types[0].usd_per_hour
    assert isclose(plan.usd_per_hour, price, rel_tol=LAST_BITS), (
        f"{words}: {plan.usd_per_hour:.6g} $ an hour, its devices cost {price:.6g}"
    )


def _waits_at_its_rate(plan: ServingPlan, asked: ServingQuestion) -> None:
    """Refuse latencies of a deployment of one pool that are not its steady state's at the row's rate."""
    (group,) = plan.groups
    state = ReplicaCases.of_group(asked, group).state(np.array([plan.load / group.replicas]))
    first = float(ttft_quantile(asked, state)[0])
    for name, told, steady in (
        ("TTFT", plan.ttft_s, first),
        ("TPOT", plan.tpot_s, float(state.tpot_s[0])),
    ):
        assert isclose(told, steady, rel_tol=LAST_BITS), (
            f"{name} of {plan.describe()}: {told:.6g} s in the row, {steady:.6g} s at its rate"
        )
