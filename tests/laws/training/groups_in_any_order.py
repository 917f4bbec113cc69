"""The order in which a cluster lists its groups changes no step."""

from tests.laws.answers import ROUNDING, step
from tests.laws.questions import Choose, Question, strategy
from tests.laws.training.groups_alike import KINDS, NAMES, halves, over_groups

NUMBER = 29
CI = 8


def pairs(choose: Choose) -> Question:
    """A step over two groups, and what the nodes of the second are."""
    return {**halves(choose), "second": choose(KINDS)}


QUESTIONS = strategy(pairs)


def check(question: Question) -> None:
    """Ask with both orders of the groups."""
    question = dict(question)
    kinds = question["cluster"], question.pop("second")
    first = step(over_groups(question, *kinds))["step_time_s"]
    second = step(over_groups(question, *kinds[::-1], names=NAMES[::-1]))["step_time_s"]
    assert abs(first - second) <= ROUNDING * first, f"{first:.9g} s becomes {second:.9g} s"
