"""Spells of steps with prompts alone, where prompts come before decodes on one rank and stage, over arrays.

Prompts that arrive during a step are computed in the next one, all together, and decodes wait until a step
ends without any. With k prompts a step takes a + b k seconds, so the seconds that follow a step of t are

    h(t) = sum over k >= 1 of Poisson(k; rate t) (a + b k + h(a + b k)),

a branching process whose families are served at once (gated service: Resing 1993, "Polling systems and
multitype branching processes"). Exponentials of t map to exponentials, which solves it: with s_0 = rate,
s_(n+1) = rate (1 - exp(-b s_n)), R_n = s_n + s_(n+1) + ... and u = rate b,

    h(t) = u t / (1 - u) + a / (1 - u) sum over n of exp(a R_n) (1 - exp(-s_n t)).

Steps of one prompt each (a = 0) are a busy period, u t / (1 - u). Of steps of constant length (b = 0) each
ends the spell with chance exp(-rate a).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.steady_cases import Prefills

Array = NDArray[np.float64]

TERMS = 3
"""Terms of the sum; the others are an integral."""
FIXED_POINT_ROUNDS = 2
"""Iterations to the prompts of a mean step."""
MOST_WORK = 0.999
"""Maximum of u."""
LONGEST_SPELL = 12.0
"""Logarithm of the longest spell, in steps."""


def joined_together(slowed: Array) -> Array:
    """Sequences that begin to decode with a request, beyond those of independent arrivals.

    The prompts of a spell decode from the same step on. Each brings as many prompts as decodes are slowed by,
    and of families as varied as exponential ones a request is in one of twice the mean.

    Args:
        slowed: mean time between decodes over a decode step.
    """
    return 2.0 * (slowed - 1.0)


class PromptSpells(NamedTuple):
    """Spells at a rate of prompts; arrays of one shape.

    Attributes:
        rate: prompts a second.
        fixed_s, prompt_s: a step of k prompts takes ``fixed_s`` + k ``prompt_s``, s.
    """

    rate: Array
    fixed_s: Array
    prompt_s: Array

    @classmethod
    def of_rate(cls, steps: Prefills, rate: Array) -> PromptSpells:
        """Spells at a rate; steps are taken as linear about their mean in a spell.

        Args:
            steps: steps with prompts; prompts that one does not hold are computed in several.
            rate: prompts a second.
        """
        number = np.ones_like(rate)
        largest = np.maximum(steps.rank_chunks / steps.chunks, 1.0)
        for _ in range(FIXED_POINT_ROUNDS):
            number = np.clip(rate * _seconds(steps, number), 1.0, largest)
        return cls.through(partial(_seconds, steps), number, rate)

    @classmethod
    def through(cls, seconds: Callable[[Array], Array], mean: Array, rate: Array) -> PromptSpells:
        """Spells at a rate of steps of some ``seconds`` by their prompts, linear about a mean number."""
        least, more = np.maximum(mean - np.sqrt(mean), 1.0), mean + np.sqrt(mean)
        few_s, many_s = seconds(least), seconds(more)
        slope = np.maximum(many_s - few_s, 0.0) / (more - least)
        slope = np.minimum(slope, MOST_WORK / np.maximum(rate, 1e-9))
        return cls(rate, many_s - slope * more, slope)

    def following(self, *seconds: Array) -> list[Array]:
        """Mean seconds of steps with prompts that follow a step, for steps of several ``seconds``."""
        slope = self.prompt_s
        work = self.rate * slope
        exponents = [self.rate]
        for _ in range(TERMS):
            exponents.append(self.rate * -np.expm1(-slope * exponents[-1]))
        last = exponents.pop()
        # All further exponents: one exceeds the next by s (1 - u + b u s / 2), to second order.
        curved = 0.5 * np.maximum(work * slope, 1e-12)
        left = np.log1p(curved * last / (1.0 - work)) / curved
        mean_s = self.fixed_s / (1.0 - work)
        totals = [(work + np.expm1(self._grown(left))) / (1.0 - work) * after for after in seconds]
        for exponent in reversed(exponents):
            left = left + exponent
            weight = mean_s * np.exp(self._grown(left))
            totals = [
                total - weight * np.expm1(-exponent * after)
                for total, after in zip(totals, seconds, strict=True)
            ]
        # No less than the first step: rounding, where many prompts are priced by the few of a mean step.
        first_s = np.maximum(self.fixed_s + self.prompt_s, 0.0)
        return [
            np.maximum(total, -first_s * np.expm1(-self.rate * after))
            for total, after in zip(totals, seconds, strict=True)
        ]

    def _grown(self, exponents: Array) -> Array:
        return np.minimum(self.fixed_s * exponents, LONGEST_SPELL)


def _seconds(steps: Prefills, prompts: Array) -> Array:
    """Seconds of the steps of some prompts of one rank, one or more."""
    chunks = prompts * steps.chunks
    return steps.seconds(np.minimum(chunks, steps.rank_chunks)) * np.maximum(chunks / steps.rank_chunks, 1.0)
