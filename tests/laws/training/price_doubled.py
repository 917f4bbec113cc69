"""Twice the price of a device doubles the cost of tokens, and moves nothing else."""

import math

from tests.laws.answers import step
from tests.laws.questions import Question, spelled, strategy, training, with_key

NUMBER = 6
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Compare the whole answers, cost apart."""
    base = with_key(spelled(question), "cluster.device", lambda device: {"price_per_hour_usd": 2.0, **device})
    before = step(base)
    after = step(with_key(base, "cluster.device.price_per_hour_usd", lambda price: 2 * price))
    costs = [answer.pop("usd_per_million_tokens") for answer in (before, after)]
    assert math.isclose(2 * costs[0], costs[1], rel_tol=1e-12), f"cost {costs[0]} becomes {costs[1]}"
    moved = [key for key in before if before[key] != after[key]]
    assert not moved, f"a price moves {moved}"
