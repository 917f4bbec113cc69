"""Ring attention hides no exchange of linear layers: they take as long under every context algorithm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.errors import InputError
from simulator.plan import Choice
from simulator.training.layer import layer
from tests.laws.answers import ROUNDING
from tests.laws.batches import batch, batches
from tests.laws.questions import HYBRID, Choose, Question, strategy

NUMBER = 15
CI = 10


def hybrids(choose: Choose) -> Question:
    """A batch of a model with linear layers."""
    return {**batches(choose), "model": choose(HYBRID)}


QUESTIONS = strategy(hybrids)


def check(question: Question) -> None:
    """Compare the passes of linear layers under ring attention and under gathers."""
    setting, plans = batch(question)
    kinds = [kind for kind in setting.model.layer_groups if kind.mixer == "linear"]
    if not kinds or not (plans.context > 1).any():
        raise InputError("no linear layer is shared by context-parallel ranks")
    for kind in kinds:
        times = []
        for word in ("ring", "all_gather"):
            chosen = np.full(len(plans), Choice["context_algorithm"].index(word))
            passes = layer(setting, replace(plans, context_algorithm=chosen), kind)
            times.append(passes.forward.seconds + passes.backward_input.seconds)
        assert np.allclose(*times, rtol=ROUNDING, atol=0.0), f"{kind} differs by the algorithm of attention"
