"""Data-parallel attention ranks and pipelines whose prompts come before their decodes, over arrays.

A rank decodes in the steps that compute none of its own prompts, and every step lasts until the slowest rank
ends: prompts of any rank make a step long, and cost their own rank that step. Prompts that arrive during a
step are computed in the next one, so that long steps follow long steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.company import poisson_above, poisson_excess
from simulator.serving.steady.steady_cases import Cases, Prefills
from simulator.serving.steady.waits import many_servers

Array = NDArray[np.float64]

MOST_PROMPTS = 0.999
"""Maximum share of a rank's steps that its own prompts take."""
LANE_ROUNDS = 3
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
    zero = np.zeros_like(step)
    behind, prompts, fewer, count, turn = zero, np.ones_like(step), np.ones_like(step), rounded_up, zero
    share, wait, tpot = zero, zero, step
    for _ in range(LANE_ROUNDS):
        turns = chunks + (rounded_up - chunks) * (1.0 - behind)
        lone, more = steps.one_chunk - (1.0 - chunks / turns) * less, steps.seconds(prompts) - steps.one_chunk
        turn = np.maximum(lone + more, 1e-9)
        other = np.maximum(lone + steps.seconds(fewer) - steps.one_chunk, 1e-9)
        # Prompts of a turn: one, and a Poisson number of others.
        came = rate * lone - (prompts - 1.0) * np.expm1(-rate * more / np.maximum(prompts - 1.0, 1e-9))
        came = np.minimum(np.maximum(came, 1e-9), LONGEST_SPELL / rounded_up)
        rounds = _rounds(stages, rate, _Turns(step, turn, other), came, turns, share)
        turned = arriving * turns * rounds.seconds
        share = np.minimum(np.clip(rounds.share, turned / most_chunks, turned), MOST_PROMPTS)
        prompts, fewer = _prompts_of(rounds, stages, rate, step, turn, turned, share)
        prompts = np.clip(prompts, 1.0, most_chunks)
        fewer = np.clip(fewer, 1.0, prompts)
        # An idle micro batch takes a prompt at once, so that those under way decode on.
        present = rate * (tpot * cases.gaps + count * turn)
        all_busy, others_busy = (poisson_above(present, stages - idle) for idle in (0.5, 1.5))
        behind_own_s = _behind_own_prompt(rounds, stages, turns, share, others_busy) / cases.gaps
        tpot = np.maximum(rounds.seconds / (1.0 - others_busy * share) + behind_own_s, step)
        wait = all_busy * rounds.wait_s
        ahead = rate * wait * count
        behind = np.where(shared, (-np.expm1(-ahead / fit)) ** fit, 0.0)
        count = rounded_up + behind * further
    beside = np.minimum(2.0 * rate * wait, most_chunks - 1.0)
    own_s = count * steps.seconds(1.0 + beside)
    own_s = own_s - (rounded_up - chunks) * (1.0 - behind) * less
    # A shorter turn waits at the last stage for the decodes ahead of it.
    own_s = own_s + count * (1.0 - 1.0 / stages) * np.maximum(step - own_s / count, 0.0)
    delay = (1.0 - step / tpot) / np.maximum(arriving, 1e-9)
    return LaneSteps(tpot, delay, own_s, wait)


class _Turns(NamedTuple):
    """Seconds of turns of a micro batch."""

    step: Array
    """Of decodes."""
    turn: Array
    """The longest one with prompts of a round."""
    other: Array
    """Its others with prompts."""


class _Rounds(NamedTuple):
    """Rounds of the micro batches of a pipeline, each of which takes one turn in it."""

    seconds: Array
    share: Array
    """Of turns that compute prompts."""
    any_long: Array
    """Share of rounds with a longest turn."""
    last_s: Array
    """Between the plans of a longest micro batch and of the one ahead, s."""
    spell: Array
    """Rounds with prompts behind a first one."""
    wait_s: Array
    """Of a prompt for the next micro batch that plans."""
    begins: Array
    """Chance that prompts follow a decode of a micro batch."""
    follow_s: Array
    """Seconds that rounds behind one with prompts are longer in all than others."""


def _rounds(stages: Array, rate: Array, each: _Turns, came: Array, turns: Array, share: Array) -> _Rounds:
    """Rounds by what each micro batch did in the one before.

    A round lasts as long as its longest turn. Micro batches leave a part of their turn behind each other, and
    the first of the longest ones leaves last: it plans after what the round exceeds the other parts by. A
    micro batch computes the prompts that came since the one ahead planned, so it computes none with chance
    exp(-rate x that time). All these times add up to the round: none computes any with chance exp(-rate x
    round). Between one long turn in a round and all of them, chances are taken to be linear.

    Args:
        stages, rate: of the pipeline; prompts a second of all micro batches.
        each: turns.
        came: prompts that come in a turn with prompts.
        turns: of a prompt.
        share: of turns with prompts, of the last iteration.
    """
    step, turn, other = each
    others, long, short = np.maximum(stages - 1.0, 1.0), np.maximum(turn, step), np.minimum(turn, step)
    slow, like = turn >= step, np.where(turn >= step, other, step)

    def none_came(seconds: Array) -> Array:
        return np.exp(-np.minimum(rate * seconds, LONGEST_SPELL))

    # None came behind a short turn, behind one of several long ones, and behind the only long one.
    behind_short, behind_long = none_came(short / stages), none_came(like / stages)
    behind_only, behind_all = (none_came(long - others / stages * seconds) for seconds in (short, like))
    # A spell goes on where all micro batches are full twice.
    rounded_up = np.ceil(turns - 1e-9)
    spell = np.expm1(rounded_up * came) / -np.expm1(-came) / (1.0 - share ** (2.0 * stages))
    starts = -np.expm1(-rate * step)
    any_long = np.where(slow, starts * spell / (1.0 + starts * spell), 1.0 - share**stages)
    # Only the last turn of a prompt is followed by one without.
    last = np.where(slow, 1.0 / turns, 1.0)
    apart = last * (behind_all - behind_only) / others
    begin, ended = 1.0 - behind_short, behind_short / turns
    more = last * (behind_long - behind_only) + apart
    prompts = (begin + any_long / stages * more) / np.maximum(begin + last * behind_long + apart, 1e-12)
    decodes = (ended - any_long * apart) / np.maximum(1.0 + ended - behind_long - apart, 1e-12)
    longs = np.clip(np.where(slow, prompts, decodes), 0.0, 1.0)
    number = np.clip(stages * longs / np.maximum(any_long, 1e-9), 1.0, stages)
    parts = (number - 1.0) * like, (stages - number) * short
    leaves_last = long - (parts[0] + parts[1]) / stages
    squares = leaves_last**2 + (parts[0] * like + parts[1] * short) / stages**2
    seconds = short + any_long * (long - short)
    share = np.where(slow, longs, 1.0 - longs)
    goes_on = -np.expm1(-came)
    return _Rounds(
        seconds=seconds,
        share=share,
        any_long=any_long,
        last_s=leaves_last,
        spell=spell,
        wait_s=0.5 * (any_long * squares + (1.0 - any_long) * short**2 / stages) / seconds,
        begins=np.where(slow, begin, np.minimum(ended * share / np.maximum(1.0 - share, 1e-9), 1.0)),
        follow_s=np.where(slow, long - short, 0.0)
        * np.maximum(goes_on - any_long, 0.0)
        / np.maximum(1.0 - goes_on + starts, 1e-12),
    )


def _prompts_of(
    rounds: _Rounds, stages: Array, rate: Array, step: Array, turn: Array, turned: Array, share: Array
) -> tuple[Array, Array]:
    """Prompts of the longest turn of a round, and of its other turns with prompts.

    The longest one takes what comes until it plans again; in the first round of a spell, what came between
    two decodes. Beside decodes that take longer all turns with prompts are alike.

    Args:
        rounds: of the micro batches.
        stages, rate, step, turn: as of `_rounds`.
        turned: prompts of a micro batch in a round.
        share: of turns with prompts.
    """
    first, later = (_some(rate * seconds) for seconds in (step / stages, rounds.last_s))
    longest = np.where(turn >= step, later + (first - later) / rounds.spell, turned / np.maximum(share, 1e-9))
    leads = np.minimum(rounds.any_long / stages, share)
    return longest, (turned - leads * longest) / np.maximum(share - leads, 1e-9)


def _some(mean: Array) -> Array:
    """Mean of a Poisson number that is not zero."""
    mean = np.maximum(mean, 1e-9)
    return mean / -np.expm1(-mean)


def _behind_own_prompt(rounds: _Rounds, stages: Array, turns: Array, share: Array, busy: Array) -> Array:
    """Seconds that the first decode of a request takes longer than its others: it comes behind a prompt,
    which more prompts follow than follow a decode.

    Args:
        rounds: of the micro batches.
        stages: of the pipeline.
        turns: of a prompt.
        share: of turns with prompts.
        busy: chance that no other micro batch is idle: one that is takes a prompt when a stage is free.
    """
    ended = np.clip(turns * rounds.begins * (1.0 - share) / np.maximum(share, 1e-9), 1e-3, 1.0)
    own = np.where(share > 1e-6, turns * np.maximum(1.0 - ended - rounds.begins, 0.0) / ended, 0.0)
    earlier = 0.5 * (1.0 - busy) * (1.0 - 1.0 / stages**2)
    return busy * own * rounds.seconds + (1.0 - earlier) * rounds.follow_s


def _busy_ranks(mean: Array, ranks: Array) -> Array:
    """Mean of the ranks that get a prompt, of a Poisson number: each goes to a rank without one."""
    return np.minimum(mean - poisson_excess(mean, ranks)[0], ranks)


def longest_rank(chunks: Array, ranks: Array, most_chunks: Array) -> Array:
    """Chunks of the rank with most of them."""
    excess, above = poisson_excess(chunks, ranks)
    return np.clip(1.0 + excess / ranks + 0.5 * above, 1.0, most_chunks)
