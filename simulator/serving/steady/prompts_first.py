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
from simulator.serving.steady.prompt_spells import PromptSpells
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
    ranks, most_chunks = steps.ranks, steps.ranks * steps.rank_chunks
    # A prompt that fills its last step in part leaves the rest to the next one of its rank, or empty.
    lacks = np.ceil(steps.chunks - 1e-9) - steps.chunks
    waited_for = np.minimum(arriving * steps.full, 1.0) ** many_servers(ranks)
    turns = steps.chunks + lacks * (1.0 - waited_for)
    full_s = steps.uneven_seconds(chunks, longest_rank(chunks, ranks, steps.rank_chunks))
    fewer = 1.0 - steps.chunks / turns
    prompts_s = full_s - fewer * (steps.lacking + full_s - steps.one_chunk)
    arrivals = np.maximum(arriving * prompts_s, 1e-9)
    spell = np.expm1(np.minimum(turns * arrivals, LONGEST_SPELL)) / -np.expm1(-arrivals)
    weight = spell * -np.expm1(-arriving * step)
    share = weight / (1.0 + weight)
    for last in (False, True):
        mean = share * prompts_s + (1.0 - share) * step
        came = np.maximum(arriving * mean, 1e-9)
        busy = share * _busy_ranks(arrivals, ranks) + (1.0 - share) * _busy_ranks(arriving * step, ranks)
        # Prompts that fill a step each do not share one; shorter ones do once every rank has one.
        unshared = np.clip(busy / came, 1.0 / steps.rank_chunks, 1.0)
        own_share = np.minimum(came * turns * unshared / ranks, MOST_PROMPTS)
        if not last:
            # Prompts of several steps wait for those of their rank: several ranks have some by chance.
            by_chance = np.where(steps.chunks > 1.0, 1.0 - (1.0 - own_share) ** ranks, 0.0)
            share = np.maximum(share, by_chance)
    met = (share * prompts_s**2 + (1.0 - share) * step**2) / mean
    # Short prompts take less than the decodes of many.
    tpot = np.maximum(mean / (1.0 - own_share), step)
    own_s = steps.uneven_seconds(
        1.0 + np.minimum(arriving * met * turns, most_chunks - 1.0), np.ones_like(met)
    )
    own_s = turns * (own_s - fewer * (steps.lacking + full_s - steps.one_chunk))
    finds_any = -np.expm1(-arriving * (tpot * cases.gaps + own_s))
    # A request's first decodes come in what is left of its own spell: that ends once no prompt has arrived
    # in as long as one is computed (busy period of M/D/inf).
    left_s = np.expm1(np.minimum(arriving * own_s, LONGEST_SPELL)) / np.maximum(arriving, 1e-9) - own_s
    further = np.maximum(left_s, 0.0) / prompts_s
    lasting = np.clip(further / (1.0 + further) + np.expm1(-arriving * step), 0.0, MOST_PROMPTS)
    beyond = (1.0 - share) * lasting / (1.0 - lasting) * (1.0 - lasting ** (cases.gaps / (1.0 - own_share)))
    longer = np.maximum(prompts_s - (1.0 - np.minimum(own_share / np.maximum(share, 1e-9), 1.0)) * tpot, 0.0)
    tpot = tpot + np.where(cases.closed, 0.0, beyond * longer / cases.gaps)
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
    share: Array
    """Of turns with prompts."""
    prompts: Array
    """Of such a turn."""
    prompt_s: Array
    """Seconds of turns for a prompt."""
    family: Array
    """Prompts that a micro batch computes from one on, until it decodes again."""


def lane_steps(
    cases: Cases, arriving: Array, step: Array, steps: Prefills, before: LaneSteps | None = None
) -> LaneSteps:
    """Turns of the micro batches of a pipeline at a rate of prompts.

    A micro batch plans its next turn when its last one has left the pipeline, with what came since
    the one ahead left. Each micro batch has one of these gaps a round: together they are the round, which is
    as long as its longest turn. A decode leaves its stages' part of the turn behind the one ahead, and the
    first of the longest turns the rest of the round. So prompts of a micro batch come in spells as those of
    one stage do (`PromptSpells`), by its gaps.

    Args:
        cases: the loads.
        arriving: prompts a second of one micro batch.
        step: seconds of a decode step.
        steps: steps with prompts.
        before: turns of the last iteration.
    """
    stages, rate, cut = cases.stages, arriving * cases.stages, _Cut.of(cases, steps)
    ones = np.ones_like(step)
    share, number = (0.0 * ones, ones) if before is None else (before.share, before.prompts)
    beside, behind, count = share, 0.0 * ones, cut.rounded_up * ones
    tpot, wait, turn, many, family = step, 0.0 * ones, step, ones, ones
    for _ in range(LANE_ROUNDS):
        gaps = _Gaps(cases, steps, step, cut.turns(behind), share, beside)
        # A first prompt, or all that came in the gap of a turn with prompts.
        came = rate * gaps.of_prompts(number)
        number = np.clip(
            np.exp(-came) + came, 1.0, np.maximum(steps.ranks * steps.rank_chunks / steps.chunks, 1.0)
        )
        spells = PromptSpells.through(gaps.of_prompts, number, rate)
        turn, many = gaps.turn(number), gaps.count(number)
        gap = gaps.of_prompts(number) / many
        after, after_own = spells.following(gaps.decode_s, gaps.of_prompts(ones))
        share = 0.5 * (share + np.minimum(after / (gap + after), MOST_PROMPTS))
        # A turn alone in its round leaves most prompts behind.
        left = cut.left(rate * np.where(turn >= step, turn - step + step / stages, turn / stages))
        beside = share + (1.0 - share) * left
        family = 1.0 + rate * after_own
        # An idle micro batch takes a prompt at once, so that those under way decode on.
        present = rate * (tpot * cases.gaps + count * turn)
        all_busy, others_busy = (poisson_above(present, stages - idle) for idle in (0.5, 1.5))
        mean_s = (1.0 - share) * gaps.decode_s + share * gap
        tpot = np.maximum(stages * mean_s / (1.0 - others_busy * share), step)
        # A request's first decode comes behind its own prompt, and those that came in its gap.
        again = np.expm1(np.minimum(rate * gap, LONGEST_SPELL)) * many * turn
        tpot = tpot + others_busy * np.maximum(again - (tpot - step), 0.0) / cases.gaps
        # Prompts of a turn vary as a geometric number does.
        squares = gaps.square(gap, turn) + spells.prompt_s**2 * number * (number - 1.0)
        squares = (1.0 - share) * gaps.decode_s**2 + share * squares
        wait = all_busy * 0.5 * squares / mean_s
        behind = cut.behind(rate * wait * count)
        count = cut.rounded_up + behind * cut.further
    met = np.minimum(2.0 * rate * wait, steps.ranks * steps.rank_chunks - 1.0)
    own_s = count * steps.seconds(1.0 + met)
    own_s = own_s - (cut.rounded_up - steps.chunks) * (1.0 - behind) * steps.lacking
    # A shorter turn waits at the last stage for the decodes ahead of it.
    own_s = own_s + count * (1.0 - 1.0 / stages) * np.maximum(step - own_s / count, 0.0)
    delay = (1.0 - step / tpot) / np.maximum(arriving, 1e-9)
    return LaneSteps(tpot, delay, own_s, wait, share, number, turn * many / number, family)


class _Cut(NamedTuple):
    """What prompts leave of the tokens of a turn."""

    chunks: Array
    rounded_up: Array
    """Turns of a prompt alone."""
    fit: Array
    """Whole prompts of a turn."""
    shared: NDArray[np.bool_]
    """Whether the next prompt fills what they leave."""

    @classmethod
    def of(cls, cases: Cases, steps: Prefills) -> _Cut:
        most_chunks, rounded_up = steps.ranks * steps.rank_chunks, np.ceil(steps.chunks - 1e-9)
        fit = np.maximum(np.floor(most_chunks + 1e-9), 1.0)
        spare = np.where(steps.chunks > 1.0, rounded_up - steps.chunks, most_chunks - fit)
        return cls(steps.chunks, rounded_up, fit, ((spare > 1e-6) | (cases.varied > 0.0)) & bool(cases.cuts))

    @property
    def further(self) -> Array:
        """Turns more of a prompt that begins in what another leaves."""
        return np.where(self.chunks > 1.0, self.chunks + 1.0 - self.rounded_up, 1.0)

    def behind(self, ahead: Array) -> Array:
        """Chance to begin there; ``ahead``: prompts that wait before."""
        return np.where(self.shared, (-np.expm1(-ahead / self.fit)) ** self.fit, 0.0)

    def turns(self, behind: Array) -> Array:
        """Turns of a prompt."""
        return self.chunks + (self.rounded_up - self.chunks) * (1.0 - behind)

    def left(self, came: Array) -> Array:
        """Chance that a turn with prompts leaves some of a Poisson number to the next micro batch.

        A prompt that is cut stays with its own; one of several turns leaves all others.
        """
        taken = self.fit + (self.shared & (self.chunks <= 1.0))
        above = np.where(taken > 1.0, poisson_above(came, taken + 0.5), 1.0 - (1.0 + came) * np.exp(-came))
        return np.minimum(above / -np.expm1(-np.maximum(came, 1e-9)), 1.0)


class _Gaps:
    """Seconds by which turns of a micro batch leave the pipeline behind the one ahead of it.

    Args:
        cases, steps, step: those of `lane_steps`.
        turns: of a prompt.
        share: of turns with prompts.
        beside: the same of other micro batches beside a turn with prompts.
    """

    def __init__(
        self, cases: Cases, steps: Prefills, step: Array, turns: Array, share: Array, beside: Array
    ) -> None:
        lone = np.maximum(steps.one_chunk - (1.0 - steps.chunks / turns) * steps.lacking, 1e-9)
        self._steps, self._step, self._lone, self._turns = steps, step, lone, turns
        self._most, self._stages = steps.ranks * steps.rank_chunks, cases.stages
        self._slow = lone >= step
        # Of the longest turns of a round the first has the rest of the round: the mean share of one of them.
        like = np.clip(np.where(self._slow, beside, 1.0 - share), 1e-6, 1.0)
        self._first = (1.0 - (1.0 - like) ** self._stages) / (self._stages * like)
        # Prompts that a turn does not hold go to the next micro batch: turns are as long then.
        self._own = np.where(self._slow, 1.0 - (1.0 - self._first) * np.clip(2.0 - self._most, 0.0, 1.0), 1.0)
        self.decode_s = step / self._stages + np.where(
            self._slow, 0.0, self._first * (step - lone) + (lone - step) / self._stages
        )

    def turn(self, prompts: Array) -> Array:
        """A turn of some prompts."""
        chunks = np.minimum(prompts * self._steps.chunks, self._most)
        return self._lone + self._steps.seconds(chunks) - self._steps.one_chunk

    def count(self, prompts: Array) -> Array:
        """Turns of some prompts."""
        several = self._steps.chunks > 1.0
        return np.where(several, prompts * self._turns, np.maximum(prompts / self._most, 1.0))

    def of_prompts(self, prompts: Array) -> Array:
        """Gaps of all turns of some prompts: what a long one exceeds others by is its own."""
        turn = self.turn(prompts)
        long = self._first * (self._lone - self._step) + self._step / self._stages
        gap = np.where(self._slow, long + self._own * (turn - self._lone), turn / self._stages)
        return gap * self.count(prompts)

    def square(self, gap: Array, turn: Array) -> Array:
        """Mean square of gaps, of their mean: those of the first turns, and of others as long."""
        other = np.minimum(turn / self._stages, gap)
        first = (gap - (1.0 - self._first) * other) / self._first
        return np.where(self._slow, self._first * first**2 + (1.0 - self._first) * other**2, gap**2)


def _busy_ranks(mean: Array, ranks: Array) -> Array:
    """Mean of the ranks that get a prompt, of a Poisson number: each goes to a rank without one."""
    return np.minimum(mean - poisson_excess(mean, ranks)[0], ranks)


def longest_rank(chunks: Array, ranks: Array, most_chunks: Array) -> Array:
    """Chunks of the rank with most of them."""
    excess, above = poisson_excess(chunks, ranks)
    return np.clip(1.0 + excess / ranks + 0.5 * above, 1.0, most_chunks)
