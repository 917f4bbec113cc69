"""A run of weeks ends or says why it cannot, and its JSON holds no number that JSON cannot."""

import json
import time

import meshwright as mw
from tests.laws.questions import Question, strategy, weeks

NUMBER = 50
QUESTIONS = strategy(weeks)
LONGEST_S = 30.0
CI = 10


def check(question: Question) -> None:
    """Simulate it; a run that cannot end is refused by an `InputError`."""
    started = time.process_time()
    answer = mw.run(question).to_dict()
    took = time.process_time() - started
    assert took < LONGEST_S, f"takes {took:.0f} s of processor time"
    json.dumps(answer, allow_nan=False)
    run = answer["run"]
    first = run["closed_form"].get("first_order")
    assert first is None or 0 < first <= 1, f"a goodput of {first}"
    wrong = [
        row["saves_s"]
        for row in run.get("detectors", ())
        if row["saves_s"] is not None and row["saves_s"] < 0
    ]
    assert not wrong, f"a detector saves {wrong} s"
