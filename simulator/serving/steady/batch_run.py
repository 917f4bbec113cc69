"""Batches that start together, end to end: all prompts first, then decode steps until the last token."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.steps.table import IterationTable

Array = NDArray[np.float64]


class BatchRun(NamedTuple):
    """Times of batches, s; arrays of equal shape."""

    prefill_s: Array
    """Prefill of all prompts."""
    decode_step_s: Array
    """A decode step in the middle of the output."""
    total_s: Array
    kv_tokens: Array
    """Mean KV of the batch while it decodes."""


def batch_run(
    table: IterationTable,
    batch: ArrayLike,
    prompt: ArrayLike,
    output: ArrayLike,
    budget: float,
    slots: ArrayLike = np.inf,
) -> BatchRun:
    """Return the run of batches of equal requests.

    Args:
        table: step times.
        batch: requests.
        prompt: prompt tokens per request.
        output: output tokens per request.
        budget: maximum query tokens of a step.
        slots: maximum number of concurrent requests; further requests run in later rounds.
    """
    batch, prompt, output, slots = np.broadcast_arrays(
        *(np.asarray(value, dtype=np.float64) for value in (batch, prompt, output, slots))
    )
    together = np.minimum(batch, np.maximum(slots, 1.0))
    rounds = batch / together
    tokens = together * prompt
    steps = np.ceil(tokens / budget)
    queries = tokens / steps
    # Whole prompts share a step; a prompt longer than the budget is cut into chunks.
    prompts = np.maximum(queries / prompt, 1.0)
    before = np.maximum(0.5 * (prompt - queries), 0.0)
    prefill = steps * table.cases.mixed_seconds(queries, before, 0.0, 1.0, prompts)
    keys = prompt + 0.5 * output
    step = table.cases.decode_seconds(together, keys)
    total = rounds * (prefill + np.maximum(output - 1.0, 0.0) * step)
    return BatchRun(prefill, step, total, together * keys)
