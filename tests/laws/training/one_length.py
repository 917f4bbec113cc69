"""Documents as long as rows are rows: any packing of them takes what a question without lengths takes."""

from tests.laws.answers import step
from tests.laws.questions import Choose, Question, strategy, training

NUMBER = 26
CI = 10


def packings(choose: Choose) -> Question:
    """A step, with a packing in its workload."""
    question = training(choose)
    words = ["pack", "pad", "none", "balance"]
    if question["plan"].get("context", 1) > 1:
        words += ["flexsp", "bytescale"]
    question["workload"] = {**question["workload"], "packing": choose(words)}
    return question


QUESTIONS = strategy(packings)
TOLD = "lengths", "packing", "documents"
"""Keys of an answer that documents add."""


def check(question: Question) -> None:
    """Ask without the lengths and with them, to the bit."""
    work = question["workload"]
    lengths = {"kind": "fixed", "tokens": work["seq_len"]}
    packed = step({**question, "workload": {**work, "lengths": lengths}})
    plain = step({**question, "workload": {key: value for key, value in work.items() if key != "packing"}})
    assert {key: value for key, value in packed.items() if key not in TOLD} == plain
