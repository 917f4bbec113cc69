"""Sequences that the KV blocks of a rank hold at a time, over arrays.

Engines that preempt allocate blocks as sequences grow. The KV in use is a sum over sequences at random phases
of their growth: mean plus ``MARGIN`` standard deviations must fit. Prompts are admitted whole, so half a
prompt's blocks stay free on average. Engines that reserve hold the peak of each sequence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MARGIN = 1.0
"""Standard deviations of the KV in use that stay free. A normal sum exceeds the room for 16 % of the
time: then the last sequence is preempted, and its prompt is computed again."""


class Growth(NamedTuple):
    """KV of sequences, arrays that broadcast."""

    prompt: Array
    """Mean prompt tokens."""
    output: Array
    """Mean output tokens."""
    prompt_variance: Array
    """Of the prompt tokens, squared tokens."""
    variation: Array
    """Variance of the output lengths over the square of their mean."""
    beside: Array
    """Tokens that a sequence holds from its admission on: windows of sliding layers."""

    @property
    def context(self) -> Array:
        """Mean tokens of a sequence found decoding."""
        return self.prompt + 0.5 * (1.0 + self.variation) * self.output


def grown_fit(room: Array, growth: Growth, block_tokens: float) -> Array:
    """Sequences that fit an engine that preempts.

    The age of a sequence found decoding is the residual life of its output (renewal theory); third moments
    are those of a gamma distribution.

    Args:
        room: KV tokens of a rank.
        growth: KV of the sequences.
        block_tokens: tokens of a block; the last block of a sequence is half full on average.
    """
    _, output, prompt_variance, varied, beside = growth
    mean = growth.context + beside + 0.5 * (block_tokens - 1.0)
    ages = output**2 * ((1.0 + varied) * (1.0 + 2.0 * varied) / 3.0 - 0.25 * (1.0 + varied) ** 2)
    margin = MARGIN * np.sqrt(prompt_variance + ages)
    left = np.maximum(room - 0.5 * (growth.prompt + beside), 0.0)
    return ((np.sqrt(margin**2 + 4.0 * mean * left) - margin) / (2.0 * mean)) ** 2


def reserved_fit(room: Array, growth: Growth, block_tokens: float) -> Array:
    """Sequences that fit an engine that reserves their last token; see `grown_fit`.

    Equal sequences leave the rest of the room free; sequences that vary leave half of one on average.
    """
    peak = np.ceil((growth.prompt + growth.output) / block_tokens) * block_tokens + growth.beside
    number = room / peak
    varies = (growth.variation > 0.0) | (growth.prompt_variance > 0.0)
    return np.where(varies, number - 0.5, np.floor(number + 1e-9))
