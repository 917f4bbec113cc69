"""Steady latencies of a deployment do not fall as its rate rises, where step times do not fall with rows."""

# Without prefix caches and scaling. A measured product of more rows may be faster than one of fewer (4 rows
# than 2: 3 % on L40S), and a latency then falls with it: the law takes the running maximum of step times.

from copy import copy
from dataclasses import replace

import numpy as np

from meshwright.questions.serving import serving_question
from planner.serving.score import ReplicaCases
from planner.serving.search import search_serving
from planner.serving.shapes import ReplicaShape
from simulator.serving.steps.joined import Grid
from tests.laws.questions import Question, served_search, strategy

NUMBER = 34
QUESTIONS = strategy(served_search)
SEARCHES = True
CI = 3
RATES = np.linspace(0.05, 1.5, 30)
"""Shares of the goodput."""
TOLERANCE = 0.002
"""Precision of the fixed point."""
TOLD = {"mixed": ("TTFT", "TPOT", "end to end"), "prefill": ("TTFT",), "decode": ("TPOT",)}
"""Latencies of a request that come from a pool of a role."""
BY_TOKENS = "padded_s", "mixed_s", "head_s", "rank_s", "experts_s"
GRIDS = "decodes", "mixed", "chunks"
"""Parts of a step table, by tokens, and by sequences or prompt tokens and their KV."""
UNASKED = dict.fromkeys(("share", "objective", "rate"))


def check(question: Question) -> None:
    """Follow the pools of the first deployment over 30 rates, beyond those that they carry."""
    asked = serving_question(None, {**UNASKED, **question}, {}, {})
    for plan in search_serving(asked, 1).plans:
        for group in (replace(group, shape=_rising(group.shape)) for group in plan.groups):
            state = ReplicaCases.of_group(asked, group, len(RATES)).state(
                RATES * plan.goodput / group.replicas
            )
            told = {"TTFT": state.ttft_s, "TPOT": state.tpot_s, "end to end": state.e2e_s}
            for name in TOLD[group.role]:
                _rises(np.where(state.stable, told[name], np.inf), f"{name} of {group.describe()}")


def _rising(shape: ReplicaShape) -> ReplicaShape:
    """A replica whose step times do not fall with tokens or sequences."""
    table = copy(shape.table)
    for name in BY_TOKENS:
        setattr(table, name, np.maximum.accumulate(getattr(table, name)))
    for name in GRIDS:
        grid = getattr(table, name)
        setattr(table, name, Grid(grid.x, grid.y, np.maximum.accumulate(grid.z, axis=0)))
    return replace(shape, table=table)


def _rises(seconds: np.ndarray, what: str) -> None:
    """Refuse latencies below those at a lower rate."""
    most = np.maximum.accumulate(seconds)
    low = np.flatnonzero(seconds < most * (1.0 - TOLERANCE))
    assert not len(low), f"{what}: {most[low[0]]:.4g} s becomes {seconds[low[0]]:.4g} s at a higher rate"
