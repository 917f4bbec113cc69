"""Adapters in the array lookups of steady states: longer steps and less KV."""

from __future__ import annotations

from copy import copy

import numpy as np

from simulator.serving.adapters.steps import AdapterSteps
from simulator.serving.steps.table import IterationTable


def adapted_table(table: IterationTable, steps: AdapterSteps, queries: int = 1) -> IterationTable:
    """A copy of a table whose array lookups hold the time of adapters; its scalar lookups are not to be used.

    Adapters add seconds by sequences and by tokens. A steady state samples ``queries`` rows of a sequence, so
    the first go with the rows, the second with the tokens.

    Args:
        table: step times without adapters.
        steps: the same with adapters.
        queries: tokens of a sequence in a decode step.
    """
    adapted = copy(table)
    rows = -(-np.arange(len(table.head_s)) // queries)
    adapted.head_s = table.head_s + steps.by_sequences(rows)
    for name in ("padded_s", "mixed_s", "rank_s"):
        seconds = getattr(table, name)
        setattr(adapted, name, seconds + steps.token_s * np.arange(len(seconds)))
    return adapted
