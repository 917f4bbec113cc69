"""A plan that a launcher can express comes back from its files as the same plan."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.laws.questions import Choose, Question, strategy
from tests.meshwright.exporters.plans_out import TOLD, returned, scenario_for

NUMBER = 78


def for_a_target(choose: Choose) -> Question:
    """A launcher, and a scenario whose plan it can express."""
    target = choose(tuple(TOLD))
    return {"target": target, **scenario_for(choose, target)}


QUESTIONS = strategy(for_a_target)


def check(question: Question) -> None:
    """Export the plan, and read its files."""
    scenario = {key: value for key, value in question.items() if key != "target"}
    with TemporaryDirectory() as folder:
        left, came = returned(question["target"], scenario, Path(folder))
    moved = {
        key: (left.get(key), came.get(key)) for key in left.keys() | came if left.get(key) != came.get(key)
    }
    assert not moved, f"{question['target']} returns another plan: {moved}"
