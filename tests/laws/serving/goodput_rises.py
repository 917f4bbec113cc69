"""Goodput does not fall when outputs or prompts are halved, targets are loosened, or GPUs are added."""

from collections.abc import Iterator

from core.errors import InfeasibleError
from meshwright.questions.serving import serving_question
from planner.serving.search import search_serving
from tests.laws.questions import Question, served_search, strategy

NUMBER = 35
QUESTIONS = strategy(served_search)
SEARCHES = True
CI = 1
TOLERANCE = 0.02
"""Rows closer than that are not told apart."""
SHORTEST = 16
"""Tokens that are not halved any more."""
LOOSER = 1.5
UNASKED = dict.fromkeys(("share", "objective", "rate", "ttft", "tpot", "e2e"))


def goodput(question: Question) -> float:
    """Largest goodput of a search; 0 where nothing fits."""
    try:
        plans = search_serving(serving_question(None, {**UNASKED, **question}, {}, {}), 1).plans
    except InfeasibleError:
        return 0.0
    return max((plan.goodput for plan in plans), default=0.0)


def easier(question: Question) -> Iterator[tuple[str, Question, Question]]:
    """Changes that leave more room: their names, and the questions before and after them.

    Outputs are halved under a target of the whole request: a token's share of the delays by prompts grows as
    outputs shrink, so that a target per token may rightly be missed.
    """
    if question["osl"] >= 2 * SHORTEST:
        seconds = question["ttft"] + question["tpot"] * question["osl"]
        whole = {key: value for key, value in question.items() if key != "tpot"} | {"e2e": seconds}
        yield "half the outputs", whole, {**whole, "osl": question["osl"] // 2}
    if question["isl"] >= 2 * SHORTEST:
        yield "half the prompts", question, {**question, "isl": question["isl"] // 2}
    for name in ("ttft", "tpot"):
        yield f"a {name} target 1.5 times as long", question, {**question, name: LOOSER * question[name]}
    yield "twice the GPUs", question, {**question, "gpus": 2 * question["gpus"]}


def check(question: Question) -> None:
    """Search before and after each change."""
    base = goodput(question)
    if not base:
        raise InfeasibleError("nothing meets the targets")
    for words, easy, easier_yet in easier(question):
        before, after = base if easy is question else goodput(easy), goodput(easier_yet)
        assert after >= before * (1.0 - TOLERANCE), f"{words}: {before:.4g} requests/s becomes {after:.4g}"
