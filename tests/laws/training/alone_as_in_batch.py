"""A plan alone takes what it takes in a batch, part by part."""

from __future__ import annotations

import numpy as np

from simulator.training import predict
from tests.laws.batches import batch, batches
from tests.laws.questions import Question, strategy

NUMBER = 16
QUESTIONS = strategy(batches)
CI = 6

LAST_BITS = 1e-13
"""Share of a step: bubble and exposed transfers are differences of makespans, which add up over other runs of
stages where a plan of the batch has more."""
ASKED = 4
"""Plans of a batch that are asked alone."""


def check(question: Question) -> None:
    """Compare the parts of a few plans of a sample."""
    setting, plans = batch(question)
    together = predict(setting, plans)
    for index in np.linspace(0, len(plans) - 1, ASKED).astype(int):
        alone = predict(setting, plans.take(np.array([index])))
        for part, seconds in alone.seconds.items():
            moved = abs(seconds[0] - together.seconds[part][index])
            assert moved <= LAST_BITS * together.time[index], (
                f"{part} takes {seconds[0]!r} s alone, {together.seconds[part][index]!r} s in a batch: "
                f"{plans.plan(int(index))}"
            )
