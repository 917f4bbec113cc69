"""A sequence length of 8k is one of 8192: a number's spelling changes no answer."""

import meshwright as mw
from tests.laws.answers import step
from tests.laws.questions import Question, strategy, training

NUMBER = 7
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Ask with the length as a word."""
    length = question["workload"]["seq_len"]
    spelled = mw.simulate(question, seq_len=f"{length // 1024}k").to_dict()
    assert spelled == step(question)
