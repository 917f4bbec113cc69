"""Steady latencies of a deployment do not fall as its rate rises."""

# Without prefix caches and scaling.

import numpy as np

from meshwright.questions.serving import serving_question
from planner.serving.replica_cases import ReplicaCases
from planner.serving.search import search_serving
from tests.laws.questions import Question, served_search, strategy

NUMBER = 34
QUESTIONS = strategy(served_search)
SEARCHES = True
CI = 3
RATES = np.linspace(0.005, 1.5, 300)
"""Shares of the goodput."""
LAST_BITS = 1e-9
TOLD = {"mixed": ("TTFT", "TPOT", "end to end"), "prefill": ("TTFT",), "decode": ("TPOT",)}
"""Latencies of a request that come from a pool of a role."""
UNASKED = dict.fromkeys(("share", "objective", "rate"))


def check(question: Question) -> None:
    """Follow the pools of the first deployment over 300 rates, beyond those that they carry."""
    asked = serving_question(None, {**UNASKED, **question}, {}, {})
    for plan in search_serving(asked, 1).plans:
        for group in plan.groups:
            state = ReplicaCases.of_group(asked, group, len(RATES)).state(
                RATES * plan.goodput / group.replicas
            )
            told = {"TTFT": state.ttft_s, "TPOT": state.tpot_s, "end to end": state.e2e_s}
            for name in TOLD[group.role]:
                _rises(np.where(state.stable, told[name], np.inf), f"{name} of {group.describe()}")


def _rises(seconds: np.ndarray, what: str) -> None:
    """Refuse latencies below those at a lower rate."""
    most = np.maximum.accumulate(seconds)
    low = np.flatnonzero(seconds < most * (1.0 - LAST_BITS))
    assert not len(low), f"{what}: {most[low[0]]:.4g} s becomes {seconds[low[0]]:.4g} s at a higher rate"
