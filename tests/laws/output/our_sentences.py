"""Nothing but our own sentences reaches the terminal: no warning of Python or NumPy, and no traceback."""

import json

from tests.fuzz.case import Case
from tests.fuzz.outcome import run
from tests.laws.questions import Choose, Question, served, strategy, training, weeks

NUMBER = 61
CI = 10


def of_any_kind(choose: Choose) -> Question:
    """A step, a served scenario or a run of weeks."""
    return choose((training, served, weeks))(choose)


QUESTIONS = strategy(of_any_kind)


def check(question: Question) -> None:
    """Ask in this process, where a warning is an error; the fuzz judges what is printed."""
    text = json.dumps(question)
    for ending in (("--json",), ()):
        code, finding = run(Case(("simulate", "question.yaml", *ending), {"question.yaml": text}))
        assert finding is None, f"exit {code}: {finding}"
