"""Two mechanisms of a step compose, each with its own sign, or a rule refuses them with its reason."""

from itertools import combinations
from pathlib import Path

from core.errors import InfeasibleError, InputError
from simulator.serving.scenario import make_serving
from tests.laws.questions import Choose, Question, served, strategy
from tests.simulator.serving.mechanisms import ASKED, EXCLUDED, SHORTER

NUMBER = 46
CI = 6
PAIRS = tuple(combinations(ASKED, 2))
ROUNDING = 1e-12


def with_a_pair(choose: Choose) -> Question:
    """A served scenario, two mechanisms, and a batch: prompt tokens, tokens before them, decodes."""
    return {
        **served(choose),
        "pair": list(choose(PAIRS)),
        "batch": [choose((0, 100, 900)), choose((0, 100, 4000)), choose((32, 1, 8, 40, 100))],
    }


QUESTIONS = strategy(with_a_pair)


def seconds(question: Question, *mechanisms: str) -> float:
    """Step of a replica with some of the mechanisms."""
    stated = {key: value for name in mechanisms for key, value in ASKED[name].items()}
    scenario = {key: value for key, value in question.items() if key not in ("pair", "batch")}
    scenario["deployment"] = {**scenario["deployment"], **stated}
    prompt, before, decodes = question["batch"]
    chunks = [(prompt, before)] if prompt else []
    table = make_serving(scenario, "law", Path()).pools[0].costs.steps
    return table.step(chunks, decodes, 1000 * decodes)


def check(question: Question) -> None:
    """Compare a step of both with a step of each: the mechanism beside it keeps its sign."""
    first, second = question["pair"]
    alone = {name: seconds(question, name) for name in (first, second)}
    if frozenset((first, second)) in EXCLUDED:
        try:
            seconds(question, first, second)
        except InfeasibleError:
            raise
        except InputError:
            return
        raise AssertionError(f"{first} and {second} exclude each other, and are taken together")
    both = seconds(question, first, second)
    for mechanism, other in ((first, second), (second, first)):
        change = both - alone[other]
        change = -change if mechanism in SHORTER else change
        assert change >= -ROUNDING, (
            f"{mechanism} beside {other} changes a step by {both - alone[other]:.3g} s"
        )
