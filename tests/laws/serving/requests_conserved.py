"""Every request ends once, with the tokens that it asked for, and its times are in order."""

from itertools import pairwise

import numpy as np

from tests.laws.answers import served_run
from tests.laws.questions import Question, served, strategy

NUMBER = 30
QUESTIONS = strategy(served)


def check(question: Question) -> None:
    """Look at the record of every request of a run."""
    run = served_run(question)
    columns, asked = run.records.columns(), question["workload"]["requests"]
    ended = len(run.records) + run.fleet.refused + run.fleet.failed
    assert ended == asked, f"{ended} of {asked} requests ended"
    assert len(np.unique(columns["serial"])) == len(columns["serial"]), "a request ended twice"
    order = ("arrival_s", "queued_s", "scheduled_s", "first_s", "last_s")
    for early, late in pairwise(order):
        assert (columns[early] <= columns[late]).all(), f"{late} before {early}"
    output = question["workload"]["output"]
    if isinstance(output, int):
        assert (columns["output"] == output).all(), "an answer has another length"
