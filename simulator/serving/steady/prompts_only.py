"""Replicas that only prefill: latencies of prompts beside those of others, over arrays.

On one stage, prompts that arrive during a step share the next one, and all end with it. Steps of n prompts
take a + b n seconds, so their mean and its square follow from those of a Poisson number of arrivals.

In a pipeline every prompt gets a micro batch of its own as long as one is free. One that finds none waits,
and shares the next turn with others. In a long turn come as many prompts as it had, and one for each other
micro batch, so long turns stay long: the pipeline is either in turns of one prompt or has some full ones, and
changes between both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.prompts_first import longest_rank
from simulator.serving.steady.steady_cases import SEVERAL, Cases, Prefills
from simulator.serving.steady.waits import budget_wait, full_wait, many_servers

Array = NDArray[np.float64]

ROUNDS = 4
"""Newton steps to the chance that a step ends without a prompt that waits."""
MOST_LOAD = 0.98
"""Maximum share of time that prompts add to steps."""


class PromptsOnly(NamedTuple):
    """Times of a prompt, s."""

    prefill_s: Array
    """Its steps, with the prompts that it shares them with."""
    first_s: Array
    """From arrival to the first of them, without the wait for full steps (`budget_wait`)."""
    running_s: Array
    """The step that an arrival finds running."""


def prompts_only(cases: Cases, arriving: Array, steps: Prefills) -> PromptsOnly:
    """Times of prompts at a rate.

    Args:
        cases: the loads.
        arriving: prompts a second on all ranks of a micro batch.
        steps: steps with prompts.
    """
    lone = steps.chunks * steps.one_chunk + _short(cases, steps) * steps.step
    times = _one_stage(cases, arriving, steps, lone)
    if not cases.staged:
        return times
    staged = _pipeline(cases, arriving, steps, lone)
    return PromptsOnly(*(np.where(cases.stages > 1, *pair) for pair in zip(staged, times, strict=True)))


def _one_stage(cases: Cases, arriving: Array, steps: Prefills, lone: Array) -> PromptsOnly:
    most_chunks = steps.ranks * steps.rank_chunks
    chunk, full_s = _seconds(steps, np.ones_like(most_chunks)), _seconds(steps, most_chunks)
    slope = _slope(steps, chunk, full_s)
    # Ranks are even in full steps alone.
    part = np.where(steps.ranks > 1.0, 0.5, 1.0) * most_chunks
    fixed = np.maximum(np.maximum(full_s - slope * most_chunks, _seconds(steps, part) - slope * part), 0.0)
    load = np.minimum(arriving * slope, MOST_LOAD)
    none, rise = np.ones_like(most_chunks), arriving * slope / (1.0 - load)
    for _ in range(ROUNDS):
        left = np.exp(-np.minimum(arriving * fixed / (1.0 - load) + rise * none, 40.0))
        none = np.clip(none - (none - left) / (1.0 + rise * left), 1e-9, 1.0)
    mean = np.maximum((fixed + slope * none) / (1.0 - load), 1e-12)
    came = arriving * mean + none
    met = (fixed**2 + (2.0 * fixed + slope) * slope * came) / ((1.0 - load**2) * mean)
    met = np.minimum(np.maximum(met, chunk), full_s)
    # Few prompts often take as long as one.
    busy = np.maximum(
        *(
            arriving * seconds / (arriving * seconds + idle)
            for seconds, idle in ((mean, none), (chunk, np.exp(-arriving * chunk)))
        )
    )
    replicas = cases.shared / cases.lanes
    finds = busy ** many_servers(replicas)
    # Behind a prompt others come until its step begins, and end with it.
    behind = slope * np.minimum(0.5 * finds * arriving * met / replicas, 0.5 * (most_chunks - 1.0))
    several = steps.chunks > 1.0
    beside = np.minimum(1.0 + arriving * steps.chunks * full_s, steps.ranks)
    # The last step of a prompt is short, but not beside other ranks.
    company = _seconds(steps, beside)
    longest = (steps.chunks + _short(cases, steps)) * company
    prompt_s = np.where(several, lone + np.minimum(beside - 1.0, 1.0) * (longest - lone), lone + behind)
    longer, even = (
        0.5 * step + _seconds(steps, np.minimum(1.0 + arriving * step, most_chunks)) - chunk
        for step in (met, np.minimum(fixed / (1.0 - load), met))
    )
    # Of several replicas the one with fewest prompts takes the next: its steps vary less.
    longer = even + (longer - even) / replicas
    waits = budget_wait(cases, arriving, steps)
    # Prompts of several steps have a rank of their own, whose first step waits for those of the other ranks.
    others = np.where(steps.ranks > 1.0, (1.0 - np.exp(-arriving * prompt_s)) ** replicas, 0.0)
    planned = 0.5 + cases.ahead * (1.0 - steps.chunks**-beside)
    first = np.where(
        several, others * planned * company, np.maximum(chunk + finds * longer - prompt_s - waits, 0.0)
    )
    return PromptsOnly(prompt_s, first, met)


def _pipeline(cases: Cases, arriving: Array, steps: Prefills, lone: Array) -> PromptsOnly:
    stages, most_chunks = cases.stages, steps.ranks * steps.rank_chunks
    replicas, rate = cases.shared / cases.lanes, arriving * cases.stages
    turn = _seconds(steps, most_chunks)
    full = steps.chunks * turn
    slope = steps.chunks * _slope(steps, lone / steps.chunks, turn)
    waits = budget_wait(cases, arriving, steps)
    # Small turns: those of a prompt each, or of those that come in a part of a turn.
    short, small = lone, np.ones_like(most_chunks)
    for _ in range(ROUNDS):
        small = np.clip(arriving * short, 1.0, most_chunks)
        short = lone + steps.chunks * (_seconds(steps, small) - steps.one_chunk)
    queue = full_wait(arriving * steps.full, many_servers(replicas), steps.full / stages / replicas)
    turning = np.minimum(arriving * lone, 1.0) ** many_servers(stages * replicas)
    queue = np.maximum(queue, 0.5 * turning * short / stages)
    alone = short + queue
    # Turns of more prompts than this grow.
    grows = rate * slope - 1.0
    least = ((stages - 1.0) * small - rate * (full - slope * most_chunks)) / np.maximum(grows, 1e-9)
    least = np.maximum(np.where(grows > 0.0, least, np.inf), small)
    present, came = rate * alone, np.maximum(rate * full, 1e-9)
    others = (stages - 1.0) * small
    begin = _above((others + least - 0.5 - present) / np.sqrt(np.maximum(present, 1e-9) / replicas)) / short
    end = _above((came - others - least) / np.sqrt(came / replicas)) / full
    share = np.where(least < most_chunks, begin / np.maximum(begin + end, 1e-300), 0.0)
    lanes = np.clip((arriving * full - 1.0) / np.maximum(most_chunks - 1.0, 1e-9), 0.0, 1.0)
    idle = (1.0 - lanes) / (1.0 + lanes * (most_chunks - 1.0))
    single = full * (1.0 - 0.5 * idle) + 0.5 * (1.0 - lanes) * short
    several = full * (1.0 + 0.5 * (1.0 - lanes - idle) + 0.5 * lanes / stages)
    large = ((1.0 - lanes) * single + most_chunks * lanes * several) / (1.0 - lanes + most_chunks * lanes)
    # What prompts leave of a turn is filled by the next one that waits, which then waits for another turn.
    whole_chunks = np.floor(most_chunks + 1e-9)
    spare = np.where(steps.chunks > 1.0, np.ceil(steps.chunks) - steps.chunks, most_chunks - whole_chunks)
    cut = ((spare > 1e-6) | (cases.varied > 0.0)) & bool(cases.cuts)
    busy = np.minimum(arriving * steps.full, 1.0)
    later = busy ** (many_servers(stages * replicas) + whole_chunks) * (1.0 - 1.0 / stages)
    in_full = most_chunks * np.maximum(lanes - 1.0 / stages, 0.0) / (1.0 - lanes + most_chunks * lanes)
    again = np.where(cut, ((1.0 - share) * later + share * in_full) * turn / whole_chunks, 0.0)
    first = (1.0 - share) * np.maximum(queue - waits, 0.0) + share * np.maximum(large - short, 0.0)
    return PromptsOnly(short + again, first, share * full + (1.0 - share) * short)


def _short(cases: Cases, steps: Prefills) -> Array:
    """What the last step of a prompt lacks of a whole chunk."""
    return (np.ceil(steps.chunks) - steps.chunks) * cases.interleaved


def _slope(steps: Prefills, chunk: Array, full_s: Array) -> Array:
    """Seconds that a prompt adds to a long step."""
    most_chunks = steps.ranks * steps.rank_chunks
    mean = np.where(most_chunks > 1.0, (full_s - chunk) / np.maximum(most_chunks - 1.0, 1e-9), 0.0)
    return np.where(steps.rank_chunks >= SEVERAL, np.maximum(steps.beyond, 0.0), mean)


def _seconds(steps: Prefills, chunks: Array) -> Array:
    """Seconds of a step of ``chunks`` chunks: ranks wait for the one with most."""
    return steps.uneven_seconds(chunks, longest_rank(chunks, steps.ranks, steps.rank_chunks))


def _above(deviations: Array) -> Array:
    """Chance that a normal number is above its mean by so many deviations (Lin 1990, 1 %)."""
    size = np.minimum(np.abs(deviations), 12.0)
    tail = 0.5 * np.exp(-0.717 * size - 0.416 * size**2)
    return np.where(deviations > 0.0, tail, 1.0 - tail)
