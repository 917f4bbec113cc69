"""Batches that start together, end to end: all prompts first, then decode steps until the last token."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.steps.speculation_cases import SpeculativeCases
from simulator.serving.steps.step_arrays import StepCases
from simulator.serving.steps.table import IterationTable

Array = NDArray[np.float64]


class PromptsRun(NamedTuple):
    """Times of prompts that all wait at once, s; arrays of equal shape."""

    total_s: Array
    mean_s: Array
    """Until a prompt's last step ends, mean over the prompts."""


class BatchRun(NamedTuple):
    """Times of batches, s; arrays of equal shape."""

    prefill_s: Array
    """Prefill of all prompts."""
    decode_step_s: Array
    """A decode step in the middle of the output."""
    total_s: Array
    kv_tokens: Array
    """Mean KV of the batch while it decodes."""


def prompts_run(
    cases: StepCases | SpeculativeCases, batch: Array, prompt: Array, budget: ArrayLike
) -> PromptsRun:
    """Return the run of prompts in steps that are filled up to their token budget, without decodes.

    Args:
        cases: step times.
        batch: prompts of one rank.
        prompt: tokens of each.
        budget: maximum query tokens of a step.
    """
    tokens = batch * prompt
    steps = np.ceil(tokens / np.asarray(budget, dtype=np.float64))
    queries = tokens / steps
    # Whole prompts share a step; a prompt longer than the budget is cut into chunks.
    prompts = np.maximum(queries / prompt, 1.0)
    before = np.maximum(0.5 * (prompt - queries), 0.0)
    step = cases.mixed_seconds(queries, before, np.zeros_like(tokens), np.ones_like(tokens), prompts)
    # A prompt's last step is that of its share of all, at least as many as it takes alone.
    prompt_steps = np.maximum(prompt / queries, 1.0)
    return PromptsRun(steps * step, 0.5 * (steps + prompt_steps) * step)


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
    prefill = prompts_run(table.cases, together, prompt, budget).total_s
    keys = prompt + 0.5 * output
    step = table.cases.decode_seconds(together, keys)
    total = rounds * (prefill + np.maximum(output - 1.0, 0.0) * step)
    return BatchRun(prefill, step, total, together * keys)
