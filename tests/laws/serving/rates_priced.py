"""Every rate up to the largest meets the targets, none above it, and a higher one costs no less an hour."""

from core.errors import InfeasibleError
from meshwright.questions.serving import serving_question
from planner.serving.plan import ServingPlan
from planner.serving.replica_cases import CLOSE
from planner.serving.search import search_serving
from tests.laws.answers import not_slower
from tests.laws.questions import Question, served_search, strategy
from tests.laws.serving.goodput_rises import UNASKED

NUMBER = 52
QUESTIONS = strategy(served_search)
SEARCHES = True
PRECISION = 4.0 * CLOSE
"""Share of a rate within which a search finds the largest one."""
SHARES = 0.2, 0.6, 1.0 - PRECISION
"""Rates over the largest."""
ABOVE = 1.05


def check(question: Question) -> None:
    """Search without a rate, then the cheapest deployment of several."""
    found = _plans(question)
    largest = max((plan.goodput for plan in found), default=0.0)
    if not largest:
        raise InfeasibleError("nothing meets the targets")
    for plan in found:
        not_slower(plan.ttft_s, question["ttft"], f"TTFT at the largest rate of {plan}")
        not_slower(plan.tpot_s, question["tpot"], f"TPOT at the largest rate of {plan}")
    before = 0.0
    for share in SHARES:
        rate = share * largest
        plans = _plans({**question, "rate": rate, "objective": "cost"})
        assert plans and plans[0].meets, f"{largest:.6g} requests/s are carried, {rate:.6g} are not"
        first = plans[0]
        assert first.load <= first.goodput * (1.0 + PRECISION), (
            f"{first.goodput:.6g} requests/s carry {first.load:.6g}"
        )
        not_slower(first.ttft_s, question["ttft"], f"TTFT at {rate:.6g} requests/s, where its target is met")
        not_slower(first.tpot_s, question["tpot"], f"TPOT at {rate:.6g} requests/s, where its target is met")
        assert first.usd_per_hour >= before, (
            f"{rate:.6g} requests/s cost {first.usd_per_hour:.6g} $ an hour, fewer {before:.6g}"
        )
        before = first.usd_per_hour
    above = _plans({**question, "rate": ABOVE * largest, "objective": "cost"})
    assert not any(plan.meets for plan in above), f"more than the largest rate, {largest:.6g}, is carried"


def _plans(question: Question) -> list[ServingPlan]:
    """The first deployments of a search; none where nothing fits."""
    try:
        return search_serving(serving_question(None, {**UNASKED, **question}, {}, {}), 3).plans
    except InfeasibleError:
        return []
