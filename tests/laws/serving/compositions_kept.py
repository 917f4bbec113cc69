"""Compositions of policies lose no request and no block."""

from core.errors import InfeasibleError
from tests.laws.questions import Choose, Question, strategy
from tests.simulator.serving import compositions

NUMBER = 42


def drawn(choose: Choose) -> Question:
    """The number of a composition."""
    return {"composition": choose(range(100_000))}


QUESTIONS = strategy(drawn)


def check(question: Question) -> None:
    """Run the composition under the guards of conservation."""
    result = compositions.run(compositions.composition(question["composition"]))
    if result is None:
        raise InfeasibleError("the composition is refused")
    compositions.check(result)
