"""A synchronous step is the sum of its phases, and no schedule takes longer than phases in turn."""

# Without staleness an asynchronous step is synchronous; with an endless queue it is the slower role.

from pathlib import Path

from simulator.rl.scenario import make_rl
from simulator.rl.step import RlStep, predict_rl
from tests.laws.answers import ROUNDING, not_slower
from tests.laws.questions import Question, post_training, strategy

NUMBER = 80
QUESTIONS = strategy(post_training)


def stepped(question: Question) -> RlStep:
    """The step by the closed form."""
    return predict_rl(make_rl(question, "law", Path()), engine=False)


def check(question: Question) -> None:
    """Compare a step with its phases, and with the same devices in turn."""
    step = stepped(question)
    phases, split = step.phases, question["schedule"].get("split")
    seconds = step.timing.seconds
    not_slower(seconds, phases.total + phases.resume, "the schedule in place of phases in turn")
    for role, idle in step.timing.idle.items():
        assert -ROUNDING <= idle <= 1, f"devices of {role} wait for {idle:.3g} of the step"
    in_turn = {"kind": "synchronous"} | ({"split": split} if split else {})
    turns = stepped({**question, "schedule": in_turn})
    assert turns.timing.seconds == turns.phases.total, "a synchronous step is not the sum of its phases"
    if split:
        fresh = stepped({**question, "schedule": {"kind": "asynchronous", "staleness": 0, "split": split}})
        equal = abs(fresh.timing.seconds - fresh.phases.total) <= ROUNDING * fresh.phases.total
        assert equal, f"without staleness {fresh.timing.seconds:.6g} s, in turn {fresh.phases.total:.6g}"
        endless = stepped(
            {**question, "schedule": {"kind": "asynchronous", "staleness": 1000, "split": split}}
        )
        work = endless.phases
        slower = max(work.busy_generation, work.generation / 1000, work.training + work.host) + work.weights
        assert abs(endless.timing.seconds - slower) <= ROUNDING * slower, (
            "a queue without end is not the slower role"
        )
