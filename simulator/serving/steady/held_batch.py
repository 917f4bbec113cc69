"""A batch that is held full: each request that ends is followed by another's prompt."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steps.table import IterationTable

Array = NDArray[np.float64]


class HeldBatch(NamedTuple):
    """Times of batches, s; arrays of equal shape."""

    step_s: Array
    """A decode step without prompts."""
    gap_s: Array
    """Mean time between two tokens of a request."""


def held_batch(
    table: IterationTable, sequences: Array, prompt: Array, output: Array, budget: float, prompts_alone: bool
) -> HeldBatch:
    """Return times of full batches.

    Args:
        table: step times.
        sequences: requests of an attention rank.
        prompt, output: tokens of a request.
        budget: maximum query tokens of a step.
        prompts_alone: prompts run in steps without decodes.
    """
    ranks, keys = table.price.pool.data, prompt + 0.5 * output
    step = table.cases.decode_seconds(sequences, keys)
    # Prompts that arrive in one decode step share a step.
    arriving = sequences / output
    together = np.clip(arriving, 1.0, np.maximum(np.floor(budget / prompt), 1.0))
    beside = np.zeros_like(sequences) if prompts_alone else sequences
    prefill = table.cases.mixed_seconds(np.minimum(together * prompt, budget), 0.0, beside, keys, together)
    # Data-parallel ranks step together: a prompt on any of them makes the step of all longer.
    chance = np.clip(-np.expm1(-arriving), 1e-9, 1.0 - 1e-9)
    met = -np.expm1(ranks * np.log1p(-chance)) / chance
    longer = prefill - (0.0 if prompts_alone else step)
    return HeldBatch(step, step + longer * arriving / together * met)
