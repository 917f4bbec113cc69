"""A deployment with its layout and limits fixed carries what it carries in the full search, to the bit."""

from core.errors import InfeasibleError
from meshwright.questions.serving import serving_question
from planner.serving.plan import ServingPlan
from planner.serving.search import search_serving
from tests.laws.questions import Question, served_search, strategy

NUMBER = 39
QUESTIONS = strategy(served_search)
SEARCHES = True
CI = 1
UNASKED = dict.fromkeys(("share", "objective", "rate"))
LAYOUT = ("tensor", "data", "pipeline", "expert", "largest_graph", "exchange")
"""Fields of a pool that are fixed."""


def found(question: Question, fix: Question) -> list[ServingPlan]:
    """Plans of one pool that a search shows."""
    asked = serving_question(None, {**UNASKED, **question}, fix, {})
    return [plan for plan in search_serving(asked, 5).plans if len(plan.groups) == 1]


def check(question: Question) -> None:
    """Search freely, then with the layout of each plan, then with its limits of a step too."""
    plans = found(question, {})
    if not plans:
        raise InfeasibleError("no plan of one pool is shown")
    for plan in plans:
        group = plan.groups[0]
        pool = group.shape.pool
        layout = {name: getattr(pool, name) for name in LAYOUT} | {"weights": pool.stored}
        layout["overlap"] = pool.overlap and pool.overlap.kind
        layout = {name: value for name, value in layout.items() if value is not None}
        limits = {"token_budget": group.budget, "max_sequences": group.sequences}
        for fix in (layout, layout | limits):
            alone = {other.describe(): other.goodput for other in found(question, fix)}
            carried = alone.get(plan.describe())
            assert carried == plan.goodput, f"{plan.describe()}: {plan.goodput!r}/s, {carried!r}/s with {fix}"
