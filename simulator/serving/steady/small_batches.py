"""Small batches by the chance of each number of sequences, over arrays.

Sequences that decode share steps evenly, and a step depends on their number: a shared processor whose rate
varies with its jobs. Under random arrivals the chance of a number is a product over the smaller numbers,
whatever the law of the outputs (Cohen 1979, "The multiple phase service network with generalized processor
sharing"). Small batches vary far about their mean: where steps are steep, as those of experts, the steps
beside a mean batch were 15 to 20 % too long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_RATIO = 0.999
"""Chance of a number of requests beyond the slots over that of one less, at most: queues grow from 1 on."""


def mean_steps(rate: Array, gaps: Array, slots: Array, shared: Array, seconds: Array, taken: Array) -> Array:
    """Mean time between decodes of a request, s, shape (cases,); it does not fall as the rate rises.

    Args:
        rate: requests a second of one batch, shape (cases,).
        gaps: decodes of a request, shape (cases,).
        slots: of a batch, shape (cases,).
        shared: batches among which arrivals are balanced, shape (cases,).
        seconds: decode steps by the sequences of all these batches, from one on, shape (numbers, cases). More
            sequences than numbers are taken to be as those of the last one.
        taken: share of time that prompts take from decodes, shape (cases,).
    """
    number, total = np.arange(1.0, len(seconds) + 1.0)[:, None], slots * shared
    steps = seconds / (1.0 - taken)
    # Chance of a number of sequences over that of one less.
    ratio = rate * shared * gaps * steps / np.minimum(number, total)
    # An arrival finds one sequence less than there are with it.
    logs = np.cumsum(np.log(np.maximum(ratio[:-1], 1e-300)), axis=0)
    logs = np.concatenate([np.zeros((1, *rate.shape)), logs])
    logs = np.where(number < total + 1.0, logs, -np.inf)
    weights = np.exp(logs - logs.max(axis=0))
    # Beyond the slots the ratio stays: arrivals wait, and decode beside full slots.
    last, every = np.minimum(np.ceil(total), len(seconds)).astype(np.int64) - 1, np.arange(len(rate))
    weights[last, every] /= 1.0 - np.minimum(ratio[last, every], MOST_RATIO)
    return np.sum(weights * steps, axis=0) / np.sum(weights, axis=0)
