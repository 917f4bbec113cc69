"""Steady states of replicas by their rate, over arrays: a curve through states of given batches.

Of a batch that is known, a rate follows from the equations; the other way round they have several solutions
where step times jump. So a curve is drawn through states of growing batches, and a rate has the state at
which the curve first reaches it. Between these states the token rate of a request, which a load takes from
linearly, is linear. What cannot fall as batches grow is held at its maximum so far: no latency of a curve
falls as its rate rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.company import companions, met_share
from simulator.serving.steady.lane_batches import longer_batch
from simulator.serving.steady.meetings import (
    MOST_INTERFERENCE,
    Meetings,
    beside_prompts_only,
    meetings,
)
from simulator.serving.steady.prompt_spells import joined_together
from simulator.serving.steady.small_batches import mean_steps
from simulator.serving.steady.state import LIKELY, Steady, watts
from simulator.serving.steady.steady_cases import Cases, Limits, Load, Steps
from simulator.serving.steady.two_states import NEARER, in_both_states
from simulator.serving.steady.waits import MOST_FILLED, budget_wait, rank_wait, slot_wait

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

POINTS = 32
"""States of a curve: batches up to 256 grow by a fifth from one to the next."""
MIXED_ROUNDS, ROUNDS = 5, 8
"""Iterations of a state where prompts share steps with decodes, and where they come before them. At a given
batch all that is left to find is what prompts that share steps spare."""
PRICED = 0, 1
"""Iterations that price prompts beside the batch, which varies by its bunching alone."""
MOST_BUNCHING = 0.2
"""Maximum share that bunched arrivals add to a batch."""
AVERAGED = (2.0 / 3.0) ** 0.5
"""Standard deviation of the batch averaged over a request's time, over that of the batch at an instant."""
CORRELATED = 0.5 / AVERAGED
"""Correlation of that average with the number of arrivals in the same time."""
LONGEST_SPREAD = 0.2
"""Variance of that maximum over their mean, for two to eight numbers 0.18 to 0.25."""
SMALL = 8.0
"""Mean sequences of all batches that share arrivals, up to which the chance of each number is counted; up to
twice as many in part. ``POINTS`` numbers hold nearly all of these."""
RISING = (
    *("rate", "slow_s", "running_s", "service_s", "prompt_s", "chunks"),
    *("full", "longest_s", "met"),
)
FALLING = "pace", "rank_chunks"


@dataclass(frozen=True, eq=False)
class RateCurve:
    """States of cases by their rate; arrays of shape (points, cases), and (cases,) of the cases themselves.

    Rates are requests a second of one attention rank and pipeline stage.
    """

    rate: Array
    pace: Array
    """Decodes of a request a second."""
    slow_s: Array
    """Mean time between decodes, and ``LIKELY`` deviations of it over requests."""
    running_s: Array
    """The step that an arrival finds running."""
    service_s: Array
    """From arrival to first token, without waits for slots and full steps."""
    prompt_s: Array
    chunks: Array
    """Seconds and number of the steps of a prompt."""
    full: Array
    rank_chunks: Array
    longest_s: Array
    """Decode time of a request beside as many as slots hold."""
    met: Array
    """Share of time that prompts take from decodes, over the most that they may take."""
    lasts: Array
    """Arrivals at all replicas until batches outgrow the graphs; infinite where they stay, or did."""
    watts: Array
    lanes: Array
    ranks: Array
    stages: Array
    shared: Array
    varied: Array
    decodes: NDArray[np.bool_]
    spelled: NDArray[np.bool_]
    slots: Array
    gaps: Array
    steps_per_token: Array
    output: Array
    alone_s: Array
    fixed_s: Array
    """Part of TTFT outside of steps."""
    prefill_s: Array
    prefill_beside_s: Array

    @property
    def highest(self) -> Array:
        """Rate at which decodes fill all slots, requests a second of a whole replica; shape (cases,)."""
        return self.rate[-1] * self.lanes

    def lasting(self, rate: float) -> Array:
        """Arrivals at all replicas until batches outgrow the graphs, shape (cases,); see ``lasts``.

        Args:
            rate: requests a second of a whole replica.
        """
        passed = np.sum(self.rate < rate / self.lanes, axis=0)
        return self.lasts[np.minimum(passed, POINTS - 1), np.arange(self.slots.size)]

    @classmethod
    def joined(cls, curves: Sequence[Self]) -> Self:
        """The cases of several curves, in their order."""
        if len(curves) == 1:
            return curves[0]
        names = [field.name for field in fields(cls)]
        return cls(
            **{name: np.concatenate([getattr(curve, name) for curve in curves], axis=-1) for name in names}
        )

    def __getitem__(self, index: Ints | slice) -> Self:
        """The curves of some cases, by their numbers."""
        return type(self)(**{field.name: getattr(self, field.name)[..., index] for field in fields(self)})

    def at(self, rate: Array) -> Steady:
        """States at rates.

        Args:
            rate: requests a second of a whole replica, shape (..., cases).
        """
        through = rate / self.lanes
        passed = np.sum(self.rate.reshape(POINTS, *(1,) * (rate.ndim - 1), -1) <= through, axis=0)
        low = np.clip(passed - 1, 0, POINTS - 2)
        low, high, every = low, low + 1, np.arange(rate.shape[-1])
        before, after = self.rate[low, every], self.rate[high, every]
        part = np.clip((through - before) / np.maximum(after - before, 1e-12), 0.0, 1.0)

        def between(values: Array) -> Array:
            first = values[low, every]
            return first + part * (values[high, every] - first)

        pace, longest, service = between(self.pace), between(self.longest_s), between(self.service_s)
        tpot = 1.0 / pace
        arriving = through * self.ranks
        steps = _Full(between(self.rank_chunks), between(self.full), between(self.chunks))
        busy = np.maximum(between(self.met), arriving * steps.full / MOST_FILLED)
        stable = (through * longest <= self.slots) & (busy < 1.0) & (through <= self.rate[-1])
        decode = tpot * self.gaps
        prompt = between(self.prompt_s), steps.chunks
        behind = rank_wait(self, through, service - self.fixed_s, *prompt, steps.rank_chunks, decode)
        wait = np.maximum(budget_wait(self, arriving, steps), behind)
        wait = wait + slot_wait(self, through, tpot, self.alone_s, longest)
        return Steady(
            ttft_s=np.where(stable, service + wait, np.inf),
            queue_s=np.where(stable, wait, np.inf),
            tpot_s=tpot * self.steps_per_token,
            tpot_spread_s=np.maximum(between(self.slow_s) - tpot, 0.0) / LIKELY * self.steps_per_token,
            batch=np.minimum(through * decode, self.slots) * self.stages,
            prefill_s=np.broadcast_to(self.prefill_s, rate.shape),
            prefill_beside_s=np.broadcast_to(self.prefill_beside_s, rate.shape),
            step_s=between(self.running_s),
            requests_s=rate,
            output_tokens_s=rate * self.output,
            watts=between(self.watts),
            stable=stable,
            decode_s=decode,
            last_tpot_s=tpot * self.steps_per_token,
        )


class _Full(NamedTuple):
    rank_chunks: Array
    full: Array
    chunks: Array


def rate_curve(table: Steps, load: Load, limits: Limits) -> RateCurve:
    """The curves of cases.

    Args:
        table: step times of the replica of each case, or of one replica.
        load, limits: as of `steady_state`; the rate is not read.
    """
    figures = (
        *(load.prompt, load.output, load.cached, load.variation, load.prompt_variation, load.replicas),
        *(limits.budget, limits.sequences, limits.kv_tokens, table.ranks),
    )
    per_case = np.broadcast_arrays(*(np.atleast_1d(np.asarray(value, np.float64)) for value in figures))
    prompt, output, cached, variation, varied, replicas, budget, sequences, room, _ = per_case
    every = Load(
        prompt, output, cached=cached, variation=variation, prompt_variation=varied, replicas=replicas
    )
    bounds = Limits(budget, sequences, room, limits.interleaved)
    return _curve(Cases.repeated(table, every, bounds, POINTS), prompt.size)


def _curve(cases: Cases, count: int) -> RateCurve:
    """Curves of ``count`` cases, each of which comes once a point."""
    share = np.repeat(np.linspace(0.0, 1.0, POINTS), count)
    slots, gaps, decodes = cases.slots, cases.gaps, cases.decodes
    ones = np.ones_like(slots)
    alone, full = cases.decode(ones), cases.decode(slots)
    steps = cases.prefills_alike(ones, alone)
    # Replicas that only prefill have no batch: their points are rates, closer where these fill all steps.
    filled = MOST_FILLED / (cases.ranks * steps.full) * (1.0 - (1.0 - share) ** 2)
    # Sequences of a batch that arrivals at random find decoding.
    around = np.where(decodes, (slots + 1.0) ** share - 1.0, 0.0)
    around, tpot, riser = _up_to_riser(cases, around, count)
    beside = _beside(cases, around)
    growth = np.maximum(gaps * (full - alone) / np.maximum(slots - 1.0, 1.0), 1e-9)
    bunching = np.where(cases.in_turn, 0.0, 1.0 / growth) / cases.stages
    zero = np.zeros_like(slots)
    delay = steps.one_chunk
    # Prompts that fill all steps take as much from decodes as they last.
    first = cases.spelled | cases.laned
    tpot = np.where(first, tpot + around * steps.full / gaps, tpot)
    earlier = tpot, zero
    met = Meetings(tpot, delay, steps.one_chunk, zero, zero, ones, None)
    through = meeting = seen = uneven = even = bunched = zero
    step = tpot
    for number in range(MIXED_ROUNDS if cases.interleaved else ROUNDS):
        through = np.where(decodes, around / (tpot * gaps), filled)
        bunched = np.minimum(bunching * delay, MOST_BUNCHING * beside)
        if cases.spells:
            bunched = np.where(cases.spelled, joined_together(tpot / step), bunched)
        if met.lanes is not None:
            together = joined_together(met.lanes.family)
            bunched = np.where(cases.laned, np.maximum(together, bunched), bunched)
        seen = np.minimum(1.0 + beside + bunched, slots)
        step = even = cases.decode(seen)
        if number in PRICED:
            steps = cases.prefills(seen, step)
        if cases.staged:
            uneven, longer = longer_batch(cases, around, beside, through, (alone, growth), met.lanes)
            step = cases.decode(np.minimum(seen + longer, slots))
        meeting = through * cases.ranks
        if cases.balances:
            present = through * cases.lanes * (tpot * gaps + met.prefill_s)
            meeting = meeting * met_share(present, cases.others_take)
        met = meetings(cases, meeting, step, tpot, steps, met)
        delay = met.delay_s
        # At a given batch a longer step meets fewer prompts a second, and as many a step.
        if cases.interleaved:
            tpot = met.mean_s
        else:
            before, tpot = (tpot, np.log(met.mean_s / tpot)), step + tpot * (1.0 - step / met.mean_s)
            if (cases.staged or cases.spells) and number > PRICED[-1] + 1:
                tpot = np.where(first, _secant(*earlier, *before, tpot), tpot)
            earlier = before
    taken = np.minimum(1.0 - step / tpot, MOST_INTERFERENCE)
    tpot = _of_small_batches(cases, around, through, tpot, taken, (seen, bunched), count)
    met = beside_prompts_only(cases, meeting, steps, met)
    longest = _longest(cases, meeting, met)
    interference = np.minimum(1.0 - step / tpot, MOST_INTERFERENCE)
    points = {
        "rate": through,
        "pace": 1.0 / tpot,
        "slow_s": tpot
        + LIKELY * _spread(cases, through, tpot, (alone, even), seen, uneven, delay, interference),
        "running_s": np.where(decodes, step, met.running_s),
        "service_s": cases.fixed + met.first_s + met.prefill_s,
        "prompt_s": met.prefill_s,
        "chunks": steps.chunks,
        "full": steps.full,
        "rank_chunks": steps.rank_chunks,
        "longest_s": longest,
        # Spells of prompts end; what they may take is the load of full steps.
        "met": np.where(first, 0.0, meeting * delay / MOST_INTERFERENCE),
        "lasts": np.full_like(slots, np.inf),
        "watts": watts(cases, through, np.minimum(through * tpot * gaps, slots), tpot),
    }
    points = {
        name: np.broadcast_to(values, slots.shape).reshape(POINTS, count) for name, values in points.items()
    }
    points = in_both_states(cases, points, around.reshape(POINTS, count), riser, interference)
    return _drawn(cases, points, alone, count)


def _drawn(cases: Cases, points: dict[str, Array], alone: Array, count: int) -> RateCurve:
    """The curves through points, of which those that may not fall or rise are held.

    Args:
        cases: ``count`` of them at each point.
        points: figures of the points by name, a case after the other at each.
        alone: seconds of a decode step of one sequence.
        count: number of cases.
    """
    slots = cases.slots
    points = points | {name: np.maximum.accumulate(points[name], axis=0) for name in RISING}
    points |= {name: np.minimum.accumulate(points[name], axis=0) for name in FALLING}
    prefill, prefill_beside = cases.prefill
    per_case = {
        **{name: getattr(cases, name) for name in ("lanes", "ranks", "stages", "shared", "varied")},
        **{
            name: getattr(cases, name)
            for name in ("decodes", "spelled", "slots", "gaps", "steps_per_token", "output")
        },
        "alone_s": alone,
        "fixed_s": cases.fixed,
        "prefill_s": prefill,
        "prefill_beside_s": prefill_beside,
    }
    per_case = {name: np.broadcast_to(values, slots.shape)[:count] for name, values in per_case.items()}
    return RateCurve(**points, **per_case)


def _beside(cases: Cases, around: Array) -> Array:
    """Sequences beside a request in a batch of ``around`` on average."""
    return companions(around, cases.balanced) if cases.balances else around


def _secant(earlier: Array, earlier_gap: Array, tpot: Array, gap: Array, plain: Array) -> Array:
    """The next time between decodes, s, by the secant of the last two: spells of prompts grow with their rate
    as an exponential, so that the plain iteration is slow.

    Args:
        earlier, tpot: seconds of the last two iterations.
        earlier_gap, gap: logarithms of the mean step that follows from these, over them, of slope -1 or less.
        plain: seconds of the plain iteration.
    """
    change, closed = np.log(tpot / earlier), earlier_gap - gap
    falls = change * closed > 0.0
    part = np.minimum(change / np.where(falls, closed, np.inf), 1.0)
    return np.where(falls, tpot * np.exp(part * gap), plain)


def _up_to_riser(cases: Cases, around: Array, count: int) -> tuple[Array, Array, Ints]:
    """Mean batches of a curve's points, their decode steps, s, and the number of the point that is moved up
    to the steepest riser; -1 where no rate falls.

    The rate falls where a batch outgrows the captured graphs. The highest rate before is what replicas carry
    beside small batches; a point below it would end that branch too early. ``NEARER`` points come close
    before it: within these deviations batches pass the jump by chance.

    Args:
        cases: the loads, ``count`` of them at each point.
        around: mean sequences of a batch.
        count: number of cases.
    """

    def steps(around: Array) -> Array:
        return cases.decode(np.minimum(1.0 + _beside(cases, around), cases.slots))

    shape, every = (POINTS, count), np.arange(count)
    points, seconds = around.reshape(shape).copy(), steps(around).reshape(shape)
    rate = points / seconds
    falls = rate[:-1] / np.maximum(rate[1:], 1e-12)
    riser = np.argmax(falls, axis=0)
    within = np.linspace(points[riser, every], points[riser + 1, every], POINTS)
    between = steps(within.ravel()).reshape(shape)
    top = np.where(falls[riser, every] > 1.0, np.argmax(within / between, axis=0), 0)
    points[riser, every] = within[top, every]
    riser = np.where(falls[riser, every] > 1.0, riser, -1)
    if riser.max(initial=-1) < 0:
        return points.ravel(), seconds.ravel(), riser
    deviation = np.sqrt(within[top, every] / cases.shared[:count])
    for nearer in range(1, NEARER + 1):
        before = np.maximum(riser - nearer, 0)
        closer = np.maximum(points[before, every], within[top, every] - nearer * deviation)
        points[before, every] = np.where(riser >= nearer, closer, points[before, every])
    return points.ravel(), steps(points.ravel()), riser


def _of_small_batches(
    cases: Cases,
    around: Array,
    through: Array,
    tpot: Array,
    taken: Array,
    company: tuple[Array, Array],
    count: int,
) -> Array:
    """Mean time between decodes, s: by the chance of each number of sequences where batches are small.

    Args:
        cases: the loads, ``count`` of them at each point.
        around: mean sequences of a batch.
        through: requests a second of one batch.
        tpot: mean time between decodes beside a mean batch, s.
        taken: share of time that prompts take from decodes.
        company: sequences seen, and those of them that bunched arrivals add.
        count: number of cases.
    """
    few_slots = cases.slots * cases.shared <= 2.0 * SMALL
    small = np.where(few_slots, 1.0, np.clip(2.0 - around * cases.shared / SMALL, 0.0, 1.0))
    small = np.where(cases.decodes & (cases.stages == 1.0) & ~cases.in_turn, small, 0.0)
    some = np.flatnonzero(small)
    if not len(some):
        return tpot
    number = np.repeat(np.arange(1.0, POINTS + 1.0), count)
    seconds = cases.decode_steady(np.clip(number / cases.shared, 1.0, cases.slots)).reshape(POINTS, count)
    figures = through, cases.gaps, cases.slots, cases.shared, taken
    rate, gaps, slots, shared, taken = (np.broadcast_to(values, small.shape)[some] for values in figures)
    mean = mean_steps(rate, gaps, slots, shared, seconds[:, some % count], taken)
    if cases.spells:
        seen, bunched = company
        longer = cases.decode(seen) / cases.decode(np.maximum(seen - bunched, 1.0))
        mean = mean * np.where(cases.spelled, longer, 1.0)[some]
    tpot = np.array(np.broadcast_to(tpot, small.shape))
    tpot[some] += small[some] * (mean - tpot[some])
    return tpot


def _longest(cases: Cases, meeting: Array, met: Meetings) -> Array:
    """Decode time of a request beside as many as slots, and tokens of steps with prompts, hold, s.

    Prompts delay this batch by what they add to its own step, not to that of the present batch: their share
    of a step's time falls where the present batch comes to a riser of the stair of step times.
    """
    slots = cases.beside_prompts
    full = cases.decode(slots)
    steps = cases.prefills_alike(slots, full)
    at_full = meetings(cases, meeting, full, full, steps, met)
    delay = at_full.delay_s
    tpot = full / (1.0 - np.minimum(meeting * delay, MOST_INTERFERENCE))
    # From above: prompts share steps that are longer than those without them.
    return cases.gaps * meetings(cases, meeting, full, tpot, steps, met._replace(lanes=at_full.lanes)).mean_s


def _spread(
    cases: Cases,
    through: Array,
    tpot: Array,
    decode_s: tuple[Array, Array],
    seen: Array,
    uneven: Array,
    delay: Array,
    interference: Array,
) -> Array:
    """Standard deviation of the time between decodes at a rate of Poisson arrivals, s.

    A request sees the mean batch over its own decoding: two thirds of the variance of the batch (that of a
    shared processor), a triangle of weights over arrivals. The prompts that delay it arrive meanwhile; their
    number has correlation ``CORRELATED`` with that batch. Accepted drafts vary the steps of a request.
    ``decode_s``: steps of one sequence and of those seen.
    """
    alone, even = decode_s
    arrivals = through * tpot * cases.gaps
    deviation = np.sqrt(arrivals / cases.shared * tpot / alone + LONGEST_SPREAD * uneven)
    more = np.minimum(seen + np.maximum(deviation, 1.0), cases.slots)
    slope = (cases.decode(more) - even) / np.maximum(more - seen, 1e-9)
    batch = AVERAGED * np.where(more > seen, slope, 0.0) * deviation / (1.0 - interference)
    # Prompts of all ranks delay a decode; ``delay`` already counts those of all micro batches.
    prompts = delay * cases.ranks * np.sqrt(arrivals / cases.shared) / cases.gaps
    drafts = tpot * cases.draws
    return np.sqrt(batch**2 + prompts**2 + 2.0 * CORRELATED * batch * prompts + drafts**2)
