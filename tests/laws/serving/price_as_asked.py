"""The price that an answer names for another number format is what a question about that format answers."""

import math

from core.errors import InfeasibleError
from meshwright.questions.serving import serving_question
from planner.serving.search import search_serving
from tests.laws.questions import Choose, Question, served_search, strategy
from tests.laws.serving.goodput_rises import UNASKED, goodput

NUMBER = 37
SEARCHES = True
CI = 2
DEGREES = "tensor", "data", "pipeline", "expert"
LAST_BITS = 1e-6


def with_a_rate(choose: Choose) -> Question:
    """A search of deployments, and a rate as a share of the largest one."""
    return {**served_search(choose), "share of the largest rate": choose((0.5, 0.2, 0.9))}


def rated(question: Question) -> Question:
    """The search at its rate.

    Raises:
        InfeasibleError: nothing meets the targets.
    """
    asked = {key: value for key, value in question.items() if key != "share of the largest rate"}
    largest = goodput(asked)
    if not largest:
        raise InfeasibleError("nothing meets the targets")
    return {**UNASKED, **asked, "rate": question["share of the largest rate"] * largest}


QUESTIONS = strategy(with_a_rate)


def check(question: Question) -> None:
    """Search with other formats beside the answer, then with the layout and the formats of each fixed."""
    asked = rated(question)
    told = [
        variant
        for variant in search_serving(serving_question(None, asked, {}, {}), 3, formats=True).variants
        if variant.plan.meets
    ]
    if not told:
        raise InfeasibleError("no other format carries the rate")
    for variant in told:
        (group,) = variant.plan.groups
        fixed = {name: getattr(group.shape.pool, name) for name in DEGREES} | {"weights": variant.weights}
        if variant.kv:
            fixed["kv"] = variant.kv
        cheapest = serving_question(None, {**asked, "objective": "cost"}, fixed, {})
        price = min(
            plan.usd_per_million
            for plan in search_serving(cheapest, 20).plans
            if len(plan.groups) == 1 and plan.meets
        )
        said = variant.plan.usd_per_million
        assert math.isclose(said, price, rel_tol=LAST_BITS), (
            f"{variant.plan.describe()}: {said:.6g} $ a million tokens are told, {price:.6g} with {fixed}"
        )
