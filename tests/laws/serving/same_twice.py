"""A serving scenario asked twice has the same answer, to the bit."""

import json

from tests.laws.answers import served_run
from tests.laws.questions import Question, served, strategy

NUMBER = 31
QUESTIONS = strategy(served)


def check(question: Question) -> None:
    """Run it twice in one process: caches of the first run serve the second."""
    first, second = (json.dumps(served_run(question).to_dict(), sort_keys=True) for _ in range(2))
    assert first == second
