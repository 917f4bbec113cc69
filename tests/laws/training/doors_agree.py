"""A plan that its release cannot run is refused by every question, or by none."""

from evidence.regression.doors import ask_doors, scenario
from tests.laws.questions import Question, strategy

NUMBER = 13
QUESTIONS = strategy(scenario)


def check(question: Question) -> None:
    """Ask the scenario's plan of the simulator, the exporters and the search."""
    door = ask_doors(question)
    assert door.agree, door.refused
