"""Faster memory, links or NICs make no images, no step over tables and no epoch over a graph take longer."""

from tests.laws.answers import not_slower
from tests.laws.other_kinds import diffused, graphed, seconds, tabled
from tests.laws.questions import Choose, Question, spelled, strategy, with_key

NUMBER = 91
FASTER = {
    "cluster.device.memory_bandwidth": lambda rate: 1.3 * rate,
    "cluster.levels": lambda levels: [{**level, "bandwidth": 2 * level["bandwidth"]} for level in levels],
    "cluster.network.nic_gbps": lambda rate: 2 * rate,
}


def hastened(choose: Choose) -> Question:
    """A question, and what gets faster."""
    return {**choose((diffused, tabled, graphed))(choose), "faster": choose(tuple(FASTER))}


QUESTIONS = strategy(hastened)


def check(question: Question) -> None:
    """Change one rate alone."""
    base = spelled({name: value for name, value in question.items() if name != "faster"})
    key = question["faster"]
    not_slower(seconds(with_key(base, key, FASTER[key])), seconds(base), key)
