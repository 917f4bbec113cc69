"""What decodes and prompts of a replica meet in its steps, over arrays: the prompts of others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.begun_together import BegunTogether, together
from simulator.serving.steady.company import any_comes
from simulator.serving.steady.prompt_spells import PromptSpells
from simulator.serving.steady.prompts_first import LaneSteps, lane_steps, longest_rank, rank_steps
from simulator.serving.steady.prompts_only import prompts_only
from simulator.serving.steady.steady_cases import Cases, Prefills
from simulator.serving.steady.waits import RUNAWAY, STEADIEST, budget_wait

Array = NDArray[np.float64]

MOST_INTERFERENCE = 0.95
"""Share of time that prefills of others may take from decodes."""


class Meetings(NamedTuple):
    """Times of a batch, s."""

    mean_s: Array
    """Mean step of a decode, prompts included."""
    delay_s: Array
    """Added to decodes by one prompt."""
    prefill_s: Array
    """A prompt's own steps."""
    first_s: Array
    """Wait of a prompt for running steps."""
    running_s: Array
    chunks: Array
    """Prompt chunks of a step with any, where ranks compute prompts in turn."""
    begun: BegunTogether | None
    lanes: LaneSteps | None = None
    """Turns of micro batches whose prompts come first."""


def meetings(
    cases: Cases, arriving: Array, step: Array, tpot: Array, steps: Prefills, before: Meetings
) -> Meetings:
    """Times at a batch and a mean step.

    Args:
        cases: the loads.
        arriving: prompts a second that come to a replica, on all ranks, while it has a request.
        step, tpot: seconds of a pure decode step, and of the mean one.
        steps: steps with prompts.
        before: the last iteration.
    """
    chunks = before.chunks
    prefill, delay, first, running = _prompts(cases, arriving, step, tpot, steps)
    taken = arriving * delay
    if cases.interleaved:
        # A step with prompts is no longer than they make it, so this rises with ``tpot``.
        mean = step + taken * tpot
    else:
        mean = step / (1.0 - np.minimum(taken, MOST_INTERFERENCE))
        mean = np.where(cases.closed, step + taken * tpot, mean) if cases.loops else mean
    sojourn = prefill + budget_wait(cases, arriving, steps) if cases.interleaved else prefill
    mean = mean + _gained_by_own_prompt(cases, taken, sojourn, tpot, steps)
    if cases.spells:
        # A request's first decode comes behind its own prompt, the others behind a decode.
        behind, behind_own = PromptSpells.of_rate(steps, arriving).following(step, prefill)
        spelled = step + behind + (behind_own - behind) / np.maximum(cases.gaps, 1.0)
        mean = np.where(cases.spelled, spelled, mean)
        delay = np.where(cases.spelled, (1.0 - step / mean) / np.maximum(arriving, 1e-9), delay)
    lanes = None
    if cases.lanes_first:
        lanes = lane_steps(cases, arriving, step, steps, before.lanes)
        mean, delay, prefill, first = (
            np.where(cases.laned, turn_s, other)
            for turn_s, other in zip(lanes, (mean, delay, prefill, first), strict=False)
        )
    if cases.turns:
        ranked = rank_steps(cases, arriving, step, steps, chunks)
        chunks = ranked.chunks
        mean, delay, prefill, first = (
            np.where(cases.in_turn, turn_s, other)
            for turn_s, other in zip(ranked, (mean, delay, prefill, first), strict=False)
        )
    begun = None
    if cases.equal:
        begun = together(cases, steps, step, delay)
        mean = np.where(cases.together, begun.tpot_s, mean)
    return Meetings(mean, delay, prefill, first, running, chunks, begun, lanes)


def beside_prompts_only(cases: Cases, arriving: Array, steps: Prefills, met: Meetings) -> Meetings:
    """The same with the times of prompts where a replica only prefills.

    Args:
        cases, arriving, steps: those of `meetings`.
        met: times as if it decoded.
    """
    if cases.all_decode:
        return met
    prompts_alone = prompts_only(cases, arriving, steps)._asdict()
    return met._replace(
        **{name: np.where(cases.decodes, getattr(met, name), times) for name, times in prompts_alone.items()}
    )


def _gained_by_own_prompt(cases: Cases, taken: Array, sojourn: Array, tpot: Array, steps: Prefills) -> Array:
    """Seconds that arrivals during a request's own prompt, and its wait for full steps, add to its mean step.

    Their prompts are computed beside its first decodes. Those that arrive in its last steps are computed when
    it has ended; but a prompt takes longer than these steps, so short outputs are delayed by more prompts
    than arrive while they decode.
    """
    longer = np.maximum(sojourn - 0.5 * (steps.chunks + 1.0) * tpot, 0.0)
    taken = np.minimum(taken, MOST_INTERFERENCE)
    gained = taken * longer * (1.0 - taken**cases.gaps) / cases.gaps
    if not cases.interleaved:
        gained = gained / (1.0 - taken)
    return np.where(cases.closed | cases.undelayed, 0.0, gained)


def _prompts(
    cases: Cases, arriving: Array, step: Array, tpot: Array, steps: Prefills
) -> tuple[Array, Array, Array, Array]:
    """Seconds of a prompt's own steps, of the delay of decodes per prompt, of the wait for running steps, and
    of the steps waited for.

    Prompts that arrive during one step are computed together in the next; so are chunks of prompts on
    different ranks.

    Args:
        cases: the loads.
        arriving: other prompts a second, on all ranks.
        step, tpot: seconds of a pure decode step, and of the mean one.
        steps: steps with prompts.
    """
    if cases.interleaved:
        window = tpot
    else:
        busy = np.minimum(arriving * steps.one_chunk, 0.9)
        window = step * (1.0 - busy) + steps.one_chunk * busy
    most_chunks = steps.ranks * steps.rank_chunks
    met = arriving * window
    if cases.lockstep:
        met = met * np.where(steps.ranks > 1.0, steps.chunks, 1.0)
    met = np.minimum(met, most_chunks - 1.0 + 1e-9)
    some = any_comes(np.maximum(met, 1e-9), cases.others_take)
    together = np.minimum(np.maximum(met / some, 1.0), most_chunks)
    if cases.interleaved and cases.lockstep:
        met, together = _met_in_lockstep(cases, arriving, step, tpot, steps, met, together)
    if cases.equal:
        together = np.where(cases.together, most_chunks, together)
    even = length = _seconds(cases, steps, together)
    if cases.staged:
        heavy = _longest_prompts(cases, arriving, met, together, steps)
        met = np.where(cases.stages > 1.0, np.maximum(met, heavy - 1.0), met)
        together, length = heavy, _seconds(cases, steps, heavy)
    # Beside a step with a prompt, the longest of the other micro batches does not count. A
    # prompt that goes first stops only the decodes of its own rank.
    decoding = 1.0 if cases.interleaved else 1.0 - np.minimum(together, steps.ranks) / steps.ranks
    delay = steps.chunks * np.maximum(length - decoding * step, 0.0) / together
    delay = np.where(cases.undelayed, 0.0, delay)
    # A round of a pipeline takes as long as the longest step in it: prompts of any micro batch delay all.
    begin_share = np.minimum(np.maximum(arriving * window * steps.chunks / together, 1e-9), 1.0 - 1e-9)
    missed = np.log1p(-begin_share)
    spread = delay * -np.expm1(cases.stages * missed if cases.staged else missed) / begin_share
    delay = np.where(cases.together, delay, spread) if cases.equal else spread
    # The last step of a prompt computes what is left of it, beside decodes and prompts on other ranks.
    count = steps.whole_chunks if cases.interleaved else steps.chunks
    less = steps.one_chunk - steps.step
    if cases.interleaved and cases.lockstep:
        count = np.where(steps.ranks > 1.0, np.maximum(steps.whole_chunks, steps.chunks), count)
        # Another rank's chunk makes the last step as long as a whole chunk would.
        alone = np.exp(-np.maximum(met, 0.0))
        less = np.where(steps.ranks > 1.0, alone * less + (1.0 - alone) * steps.beside, less)
    prefill = count * _seconds(cases, steps, 1.0 + met) - (count - steps.chunks) * less
    share = np.minimum(arriving * steps.chunks * length / together, 1.0)
    running = _running(cases, arriving, step, steps, even, length, share)
    following = 1.0 / ((1.0 - share) / step + share / length)
    meets = -np.expm1(-arriving * (tpot * cases.gaps + prefill))
    return prefill, np.maximum(delay, 0.0), meets * (0.5 * running + cases.ahead * following), running


def _seconds(cases: Cases, steps: Prefills, chunks: Array) -> Array:
    """Step time with ``chunks`` chunks, a mean number: ranks in lockstep wait for the one with most."""
    if not (cases.interleaved and cases.lockstep):
        return steps.seconds(chunks)
    longest = longest_rank(chunks, steps.ranks, steps.rank_chunks)
    return np.where(steps.ranks > 1.0, steps.uneven_seconds(chunks, longest), steps.seconds(chunks))


def _running(
    cases: Cases, arriving: Array, step: Array, steps: Prefills, even: Array, length: Array, share: Array
) -> Array:
    """Mean length of the step that an arrival finds running, s.

    A pipeline plans the longest micro batch when it has run on all stages, and the others a share later. Once
    one micro batch is full, what it leaves waits for its next turn.

    Args:
        cases, arriving, step, steps: those of `_prompts`.
        even, length: seconds of a mean step with prompts, and of the longest micro batch's.
        share: time in steps with prompts.
    """
    if not cases.staged:
        return (1.0 - share) * step + share * length
    runs_away = RUNAWAY * arriving * steps.growing >= 1.0
    turn = np.where(runs_away & (cases.stages > 1), 0.0, even / cases.stages)
    last = length - (cases.stages - 1.0) * turn
    uneven = (last**2 + (cases.stages - 1.0) * turn**2) / length
    return (1.0 - share) * step / cases.stages + share * uneven


def _met_in_lockstep(
    cases: Cases, arriving: Array, step: Array, tpot: Array, steps: Prefills, met: Array, together: Array
) -> tuple[Array, Array]:
    """Other chunks in the step of a chunk on data-parallel ranks, and the chunks of a step with any.

    A prompt arrives in a long step more often than in a short one, and then meets the prompts of that step:
    steps with prompts are fuller, and fewer, than arrivals during the mean step say.
    """
    chunks = arriving * steps.chunks
    length = _seconds(cases, steps, together)
    in_prompts = np.clip(chunks * length / together, 0.0, 1.0)
    by_time = in_prompts * length + (1.0 - in_prompts) * step
    by_count = in_prompts * tpot / length
    none = by_count * np.exp(-chunks * length) + (1.0 - by_count) * np.exp(-chunks * step)
    most_chunks = steps.ranks * steps.rank_chunks
    fuller = np.clip(chunks * tpot / np.maximum(1.0 - none, 1e-9), together, most_chunks)
    several = (steps.ranks > 1.0) & cases.decodes & (chunks > 0.0)
    return (
        np.where(several, np.minimum(chunks * by_time, most_chunks - 1.0 + 1e-9), met),
        np.where(several, fuller, together),
    )


def _longest_prompts(cases: Cases, arriving: Array, met: Array, together: Array, steps: Prefills) -> Array:
    """Prompts in a step of the micro batch with most of them.

    The longest micro batch of a pipeline is planned last, so it takes the prompts that arrive during its
    own excess too. Where these take longer than the excess, it grows until a limit of its step.
    """
    grows = RUNAWAY * arriving * steps.behind
    excess = cases.longest_of * np.sqrt(met) * (np.maximum(1.0 - grows, STEADIEST) ** -0.5 - 1.0)
    lasting = RUNAWAY * arriving * steps.growing
    longest = np.where(lasting >= 1.0, steps.rank_chunks, together + excess)
    longest = np.clip(longest, 1.0, steps.rank_chunks)
    return np.where(cases.stages > 1.0, longest, together)
