"""A cluster by name is the cluster that its catalogue entry spells out."""

from tests.laws.answers import step
from tests.laws.questions import Question, spelled, strategy, training

NUMBER = 12
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Ask with the mappings of cluster and device."""
    assert step(question) == step(spelled(question))
