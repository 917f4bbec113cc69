"""Data-parallel attention ranks and pipelines whose prompts come before their decodes, over arrays.

A rank decodes in the steps that compute none of its own prompts, and every step lasts until the slowest rank
ends: prompts of any rank make a step long, and cost their own rank that step. Prompts that arrive during a
step are computed in the next one, so that long steps follow long steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.company import poisson_excess
from simulator.serving.steady.steady_cases import Cases, Prefills
from simulator.serving.steady.waits import many_servers

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
    number of steps, after a first prompt that takes several of them.

    Args:
        cases: the loads.
        arriving: prompts a second on all ranks.
        step: seconds of a step in which all ranks decode.
        steps: steps with prompts.
        chunks: prompt chunks of a step with any, of the last iteration.
    """
    ranks, most_chunks = steps.ranks, steps.ranks * steps.most
    # A prompt that fills its last step in part leaves the rest to the next one of its rank, or empty.
    lacks = np.ceil(steps.chunks - 1e-9) - steps.chunks
    waited_for = np.minimum(arriving * steps.full, 1.0) ** many_servers(ranks)
    turns = steps.chunks + lacks * (1.0 - waited_for)
    full_s = steps.uneven_seconds(chunks, longest_rank(chunks, ranks, steps.most))
    fewer = 1.0 - steps.chunks / turns
    prompts_s = full_s - fewer * (steps.lacking + full_s - steps.one_chunk)
    arrivals = np.maximum(arriving * prompts_s, 1e-9)
    spell = np.expm1(np.minimum(turns * arrivals, LONGEST_SPELL)) / -np.expm1(-arrivals)
    weight = spell * -np.expm1(-arriving * step)
    share = weight / (1.0 + weight)
    mean = share * prompts_s + (1.0 - share) * step
    met = (share * prompts_s**2 + (1.0 - share) * step**2) / mean
    came = np.maximum(arriving * mean, 1e-9)
    busy = share * _busy_ranks(arrivals, ranks) + (1.0 - share) * _busy_ranks(arriving * step, ranks)
    # Prompts that fill a step each do not share one; shorter ones do once every rank has one.
    unshared = np.clip(busy / came, 1.0 / steps.most, 1.0)
    # Short prompts take less than the decodes of many.
    tpot = np.maximum(mean / (1.0 - np.minimum(came * turns * unshared / ranks, MOST_PROMPTS)), step)
    own_s = steps.uneven_seconds(
        1.0 + np.minimum(arriving * met * turns, most_chunks - 1.0), np.ones_like(met)
    )
    own_s = turns * (own_s - fewer * (steps.lacking + full_s - steps.one_chunk))
    finds_any = -np.expm1(-arriving * (tpot * cases.gaps + own_s))
    return RankSteps(
        tpot_s=tpot,
        delay_s=(1.0 - step / tpot) / np.maximum(arriving, 1e-9),
        prefill_s=own_s,
        first_s=finds_any * (0.5 * met + cases.ahead * mean),
        chunks=np.clip(came * turns / np.maximum(share, 1e-9), 1.0, most_chunks),
    )


class LaneSteps(NamedTuple):
    """Turns of micro batches that compute prompts or decode, s."""

    tpot_s: Array
    """Mean time between the decode steps of a micro batch."""
    delay_s: Array
    """Part of it that one prompt adds."""
    prefill_s: Array
    """Turns of a prompt."""
    first_s: Array
    """Wait for the first of them."""


def lane_steps(cases: Cases, arriving: Array, step: Array, steps: Prefills) -> LaneSteps:
    """Turns of the micro batches of a pipeline at a rate of prompts.

    A micro batch plans its next turn when its last one has left the pipeline, and those behind it follow at
    once: all wait until the prompts in the pipeline have left. What a prompt leaves of a turn's tokens is
    filled by the next one that waits, which then waits for another turn of the same micro batch.

    Args:
        cases: the loads.
        arriving: prompts a second of one micro batch.
        step: seconds of a decode step.
        steps: steps with prompts.
    """
    stages, chunks = cases.stages, steps.chunks
    rate, most_chunks = arriving * stages, steps.ranks * steps.most
    rounded_up, fit = np.ceil(chunks - 1e-9), np.maximum(np.floor(most_chunks + 1e-9), 1.0)
    # Tokens that whole prompts leave of a turn, and turns more of a prompt that begins in them.
    spare = np.where(chunks > 1.0, rounded_up - chunks, most_chunks - fit)
    shared = ((spare > 1e-6) | (cases.varied > 0.0)) & bool(cases.cuts)
    further = np.where(chunks > 1.0, chunks + 1.0 - rounded_up, 1.0)
    less = steps.lacking
    behind, prompts, count = np.zeros_like(step), np.ones_like(step), rounded_up
    decoding, share, length, wait = (np.zeros_like(step) for _ in range(4))
    for _ in range(LANE_ROUNDS):
        turns = chunks + (rounded_up - chunks) * (1.0 - behind)
        lone, more = steps.one_chunk - (1.0 - chunks / turns) * less, steps.seconds(prompts) - steps.one_chunk
        own = np.maximum(lone + more, 1e-9)
        # Beside decodes that take longer, a turn with prompts costs its micro batch one of theirs.
        length = np.maximum(own, step * (1.0 - share ** (stages - 1.0)))
        share = np.minimum(arriving * turns * length / prompts, MOST_PROMPTS)
        # A spell ends once none came in a turn, after the others planned theirs: in one of a lone prompt or
        # of several, a Poisson number. It goes on where all micro batches are full twice.
        came = rate * np.maximum(lone - (1.0 - 1.0 / stages) * step, 0.0)
        came = came - (prompts - 1.0) * np.expm1(-rate * more / np.maximum(prompts - 1.0, 1e-9))
        came = np.minimum(np.maximum(came, 1e-9), LONGEST_SPELL / rounded_up)
        spell = np.expm1(rounded_up * came) / -np.expm1(-came) / (1.0 - share ** (2.0 * stages))
        decoding = 1.0 / (1.0 + rate * length * spell)
        # Micro batches with prompts, where one has any: their turns end a part of a turn apart.
        with_any = np.maximum(1.0 - decoding, 1e-9)
        lanes = np.clip(stages * share / with_any, 1.0, stages)
        apart, last = length / stages, length * (1.0 - (lanes - 1.0) / stages)
        uneven = ((lanes - 1.0) * apart**2 + last**2) / length
        wait = 0.5 * (with_any * uneven + decoding * step / stages)
        begun = -np.expm1(-rate * last) - (lanes - 1.0) * np.expm1(-rate * apart)
        begun = with_any * begun / length - decoding * stages / step * np.expm1(-rate * step / stages)
        prompts = np.clip(rate / np.maximum(begun, 1e-9), 1.0, most_chunks)
        ahead = rate * wait * count
        behind = np.where(shared, (-np.expm1(-ahead / fit)) ** fit, 0.0)
        count = rounded_up + behind * further
    tpot = 1.0 / (decoding / step + np.maximum(1.0 - share - decoding, 0.0) / length)
    tpot = np.maximum(tpot, step)
    beside = np.minimum(2.0 * rate * wait, most_chunks - 1.0)
    own_s = count * steps.seconds(1.0 + beside)
    own_s = own_s - (rounded_up - chunks) * (1.0 - behind) * less
    # A shorter turn waits at the last stage for the decodes ahead of it.
    own_s = own_s + count * (1.0 - 1.0 / stages) * np.maximum(step - own_s / count, 0.0)
    return LaneSteps(tpot, (1.0 - step / tpot) / np.maximum(arriving, 1e-9), own_s, wait)


def _busy_ranks(mean: Array, ranks: Array) -> Array:
    """Mean of the ranks that get a prompt, of a Poisson number: each goes to a rank without one."""
    return np.minimum(mean - poisson_excess(mean, ranks)[0], ranks)


def longest_rank(chunks: Array, ranks: Array, most_chunks: Array) -> Array:
    """Chunks of the rank with most of them."""
    excess, above = poisson_excess(chunks, ranks)
    return np.clip(1.0 + excess / ranks + 0.5 * above, 1.0, most_chunks)
