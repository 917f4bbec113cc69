"""Documents as long as rows are rows, and take what these take; groups of context ranks may take less."""

# A rank of a group of context-parallel ranks that holds a whole document exchanges no keys and values.

from simulator.packing.grouped_steps import GROUPED
from tests.laws.answers import not_slower, step
from tests.laws.questions import Choose, Question, strategy, training

NUMBER = 26
CI = 10


def packings(choose: Choose) -> Question:
    """A step, with a packing in its workload."""
    question = training(choose)
    words = ["pack", "concat", "pad", "none", "balance"]
    if question["plan"].get("context", 1) > 1:
        words += ["flexsp", "bytescale"]
    question["workload"] = {**question["workload"], "packing": choose(words)}
    return question


QUESTIONS = strategy(packings)
TOLD = "lengths", "packing", "documents"
"""Keys of an answer that documents add."""


def check(question: Question) -> None:
    """Ask without the lengths and with them: to the bit, where no rank can hold a whole document."""
    work = question["workload"]
    lengths = {"kind": "fixed", "tokens": work["seq_len"]}
    packed = step({**question, "workload": {**work, "lengths": lengths}})
    plain = step({**question, "workload": {key: value for key, value in work.items() if key != "packing"}})
    if work["packing"] in GROUPED and question["plan"]["micro_batch"] > 1:
        not_slower(packed["step_time_s"], plain["step_time_s"], "groups for a plan of one degree")
        return
    assert {key: value for key, value in packed.items() if key not in TOLD} == plain
