"""Twice the batch takes between once and twice the time."""

from tests.laws.answers import not_slower, step
from tests.laws.questions import Question, strategy, training, with_key

NUMBER = 11
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Double the micro batches of every replica."""
    base = step(question)["step_time_s"]
    double = step(with_key(question, "workload.global_batch", lambda batch: 2 * batch))["step_time_s"]
    not_slower(base, double, "half the batch")
    not_slower(double, 2 * base, "the batch twice")
