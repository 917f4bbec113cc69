"""The base of a what-if is what ``simulate`` says."""

import meshwright as mw
from tests.laws.answers import step
from tests.laws.questions import Question, strategy, training

NUMBER = 8
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Ask beside a variation, in this process."""
    variations = {"more": {"set": {"workload.global_batch": 2 * question["workload"]["global_batch"]}}}
    execution = mw.Execution(workers=1)
    base = mw.whatif(question, variations=variations, execution=execution).to_dict()["base"]
    alone = step(question)
    moved = [key for key in ("step_time_s", "mfu") if base[key] != alone[key]]
    assert not moved, f"base of whatif and simulate differ in {moved}"
