"""FLOP utilisation lies between 0 and 1, and hardware FLOP are not fewer than the model's."""

from tests.laws.answers import ROUNDING, step
from tests.laws.questions import Question, strategy, training

NUMBER = 10
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Look at the utilisations of one answer."""
    answer = step(question)
    assert 0 < answer["mfu_causal"] <= 1, f"mfu_causal is {answer['mfu_causal']}"
    assert answer["hfu"] >= answer["mfu"] * (1 - ROUNDING), f"hfu {answer['hfu']} below mfu {answer['mfu']}"
