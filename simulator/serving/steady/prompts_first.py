"""Data-parallel attention ranks and pipelines whose prompts come before their decodes, over arrays.

A rank decodes in the steps that compute none of its own prompts, and every step lasts until the slowest rank
ends: prompts of any rank make a step long, and cost their own rank that step. Prompts that arrive during a
step are computed in the next one, so that long steps follow long steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.steady_cases import Cases, Prefills

Array = NDArray[np.float64]

MOST_PROMPTS = 0.999
"""Maximum share of a rank's steps that its own prompts take."""
LANE_ROUNDS = 4
"""Iterations between the length of a round and the prompts that come in it."""
LONGEST_SPELL = 40.0
"""Logarithm of the longest spell: beyond it all steps have prompts."""


class RankSteps(NamedTuple):
    """Steps of ranks that compute prompts or decode, s."""

    tpot_s: Array
    """Mean time between the decode steps of a rank."""
    delay_s: Array
    """Part of it that one prompt adds to the decodes of all ranks."""
    prefill_s: Array
    """Steps of a prompt."""
    first_s: Array
    """Wait for the running step, and for those planned."""
    chunks: Array
    """Prompt chunks of a step with any, over all ranks."""


def rank_steps(cases: Cases, arriving: Array, step: Array, steps: Prefills, chunks: Array) -> RankSteps:
    """Steps of ranks at a rate of prompts.

    A spell of steps with prompts ends once no prompt has arrived during the steps that one takes: a geometric
    number of steps, after a first prompt that takes ``steps.chunks`` of them.

    Args:
        cases: the loads.
        arriving: prompts a second on all ranks.
        step: seconds of a step in which all ranks decode.
        steps: steps with prompts.
        chunks: prompt chunks of a step with any, of the last iteration.
    """
    ranks = steps.ranks
    prompts_s = steps.uneven_seconds(chunks, _longest(chunks, ranks, steps.most))
    arrivals = np.maximum(arriving * prompts_s, 1e-9)
    spell = np.expm1(np.minimum(steps.chunks * arrivals, LONGEST_SPELL)) / -np.expm1(-arrivals)
    weight = spell * -np.expm1(-arriving * step)
    share = weight / (1.0 + weight)
    mean = share * prompts_s + (1.0 - share) * step
    met = (share * prompts_s**2 + (1.0 - share) * step**2) / mean
    came = np.maximum(arriving * mean, 1e-9)
    busy = share * _busy_ranks(arrivals, ranks) + (1.0 - share) * _busy_ranks(arriving * step, ranks)
    # Prompts that fill a step each do not share one; shorter ones do once every rank has one.
    unshared = np.clip(busy / came, 1.0 / steps.most, 1.0)
    tpot = mean / (1.0 - np.minimum(came * steps.chunks * unshared / ranks, MOST_PROMPTS))
    return RankSteps(
        tpot_s=tpot,
        delay_s=(1.0 - step / np.maximum(tpot, step)) / np.maximum(arriving, 1e-9),
        prefill_s=steps.chunks * steps.uneven_seconds(1.0 + arriving * met, np.ones_like(met)),
        first_s=0.5 * met + cases.ahead * mean,
        chunks=np.clip(came * steps.chunks / np.maximum(share, 1e-9), 1.0, ranks * steps.most),
    )


def lane_steps(cases: Cases, arriving: Array, step: Array, steps: Prefills) -> tuple[Array, Array]:
    """Mean seconds between decode steps of a micro batch of a pipeline, and what a prompt adds to them.

    A round lasts as long as its longest step. The micro batch that plans next takes all waiting prompts and
    gives up that turn; the others decode in a round that the prompts make longer.

    Args:
        cases: the loads.
        arriving: prompts a second of one micro batch.
        step: seconds of a decode step.
        steps: steps with prompts.
    """
    turn, prompts = step, np.zeros_like(step)
    for _ in range(LANE_ROUNDS):
        came = np.maximum(arriving * turn * steps.chunks, 1e-9)
        # Those that came in one turn share the next one, as far as they fit.
        prompts = np.minimum(np.maximum(-np.expm1(-came), came / steps.most), MOST_PROMPTS)
        longest = steps.seconds(np.minimum(np.maximum(came / prompts, 1.0), steps.most))
        some = -np.expm1(cases.stages * np.log1p(-prompts))
        turn = step + some * np.maximum(longest - step, 0.0)
    tpot = turn / (1.0 - prompts)
    return tpot, (1.0 - step / np.maximum(tpot, step)) / np.maximum(arriving, 1e-9)


def _excess(mean: Array, limit: Array) -> tuple[Array, Array]:
    """Mean by which a Poisson number exceeds a limit, and the chance that it does (normal, logistic tail)."""
    deviation = np.sqrt(mean) + 1e-9
    z = np.clip((limit - mean) / deviation, -20.0, 20.0)
    above = 1.0 / (1.0 + np.exp(1.702 * z))
    return np.maximum(deviation * (np.exp(-0.5 * z * z) / 2.5066 - z * above), 0.0), above


def _busy_ranks(mean: Array, ranks: Array) -> Array:
    """Mean of the ranks that get a prompt, of a Poisson number: each goes to a rank without one."""
    return np.minimum(mean - _excess(mean, ranks)[0], ranks)


def _longest(chunks: Array, ranks: Array, most: Array) -> Array:
    """Chunks of the rank with most of them."""
    excess, above = _excess(chunks, ranks)
    return np.clip(1.0 + excess / ranks + 0.5 * above, 1.0, most)
