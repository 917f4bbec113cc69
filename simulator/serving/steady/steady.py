"""Steady states of one replica over arrays: latencies and throughput under constant concurrency or a rate.

A request decodes beside the sequences that an arrival finds decoding; every decode token also waits for
prefills of other requests. Under constant concurrency C, a request spends D of its E seconds decoding,
so C D / E sequences decode; at a rate r, r D. TPOT is a fixed point, found by damped iteration with
extrapolation. Little's law gives the throughput. Data-parallel ranks step together: prompts of all ranks make
a step longer, and those on different ranks share one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.begun_together import BegunTogether
from simulator.serving.steady.company import companions, met_share
from simulator.serving.steady.meetings import MOST_INTERFERENCE, STEADIEST, Meetings, meetings
from simulator.serving.steady.steady_cases import Cases, Limits, Load
from simulator.serving.steady.waits import MOST_FILLED, budget_wait, slot_wait
from simulator.serving.steps.speculation_cases import SpeculativeCases
from simulator.serving.steps.step_arrays import StepCases
from simulator.serving.steps.table import IterationTable

__all__ = ["Limits", "Load", "Steady", "highest_stable_rate", "steady_state"]

Array = NDArray[np.float64]

ITERATIONS = 24
PREFILL_ITERATIONS = 0, 1, 3, 6, 10, 15
"""Iterations that re-price the interference of prefills, which varies little with the batch."""
DAMPING = 0.4
"""Of closed loops, whose clients are fewer where TPOT is longer. At a rate more sequences decode, so TPOT
rises from that of a lone request to the least that solves the equations, which rises with the rate."""
LEAPS = 5, 8, 11, 14, 17, 20
"""Iterations before extrapolation to the fixed point."""
OVERSHOT = 0.05
"""Excess of a TPOT over its next value from which a leap is taken back."""
LONGEST_PROMPTS = 0.999
"""The same where they share steps: these are then as long as prompts make them."""
MOST_BUNCHING = 0.2
"""Maximum share that bunched arrivals add to a batch."""
AVERAGED = (2.0 / 3.0) ** 0.5
"""Standard deviation of the batch averaged over a request's time, over that of the batch at an instant."""
CORRELATED = 0.5 / AVERAGED
"""Correlation of that average with the number of arrivals in the same time."""
LONGEST_SPREAD = 0.2
"""Variance of that maximum over their mean, for two to eight numbers 0.18 to 0.25."""


@dataclass(frozen=True)
class Steady:
    """Means of a steady state, arrays of one shape."""

    ttft_s: Array
    """TTFT of a request that finds the replica busy: fixed part, running step, own prefill, queue."""
    queue_s: Array
    """Part of TTFT before the request's first step: waits for a slot, for memory and for other prefills."""
    tpot_s: Array
    tpot_spread_s: Array
    """Standard deviation of TPOT over requests, by batches and prompts met, and drafts; 0 in closed loops."""
    batch: Array
    """Decoding sequences of one rank."""
    prefill_s: Array
    """Prefill of one prompt on an otherwise idle replica."""
    prefill_beside_s: Array
    """The same when every data-parallel rank prefills a prompt."""
    step_s: Array
    """A pure decode step; of a replica that only prefills, the step that a request meets."""
    requests_s: Array
    """Requests a second of the whole replica."""
    output_tokens_s: Array
    watts: Array
    """Power of the replica's devices, without hosts."""
    stable: NDArray[np.bool_]
    """False where the queue grows without bound at the requested rate."""

    @property
    def e2e_s(self) -> Array:
        """Mean end-to-end latency."""
        return self.ttft_s + self.decode_s

    decode_s: Array
    """From first to last token."""
    last_tpot_s: Array = field(default_factory=lambda: np.zeros(()))
    """TPOT of the last requests of clients whose run ends: no more prompts come than those that wait."""


def steady_state(table: IterationTable | StepCases | SpeculativeCases, load: Load, limits: Limits) -> Steady:
    """Return the steady state of every case.

    Args:
        table: step times of the replica, or of the replica of each case.
        load: requests on the whole replica, shared evenly by its attention ranks and micro batches.
        limits: of one rank.
    """
    cases = Cases(table.cases if isinstance(table, IterationTable) else table, load, limits)
    closed, clients, slots, gaps = cases.closed, cases.clients, cases.slots, cases.gaps
    seen = np.where(closed, np.maximum(np.minimum(clients, slots), 1.0), 1.0)
    alone, full = cases.decode(np.ones_like(seen)), cases.decode(slots)
    step, steps = cases.decode(seen), cases.prefills(seen)
    service, wait = cases.fixed + steps.one_chunk + step, np.zeros_like(seen)
    through = others = arriving = meeting = cases.arrivals
    loops, delay, tpot = cases.loops, steps.one_chunk, step
    other_clients = np.where(closed, np.maximum(clients - 1, 0) / np.maximum(clients, 1.0), 1.0)
    growth, bunching = _bunching(cases, alone, full)
    earlier = before = moved = interference = uneven = longest = np.zeros_like(seen)
    met = Meetings(tpot, steps.one_chunk, steps.one_chunk, step, step, np.ones_like(seen), None)
    kept, below = np.where(closed, 1.0 - DAMPING, 1.0), alone
    # The largest TPOT that the equations were seen to exceed: at a rate the solution is not below it.
    kept_below = np.where(closed, 0.0, 1.0)
    leap_batch, leap_tpot = seen, tpot
    for iteration in range(ITERATIONS):
        if iteration in PREFILL_ITERATIONS:
            steps = cases.prefills(seen)
        decode = tpot * gaps
        if loops:
            lifetime = np.maximum(service + wait + decode, 1e-9)
            served = np.minimum(clients, slots * (decode + service + wait) / (decode + service))
            through = np.where(closed, served / lifetime, cases.arrivals)
            others = through * other_clients
        beside = companions(others * decode, cases.balanced) if cases.balances else others * decode
        bunched = np.minimum(bunching * delay, MOST_BUNCHING * beside)
        seen = np.minimum(1.0 + beside + bunched, slots)
        step = cases.decode(seen)
        if cases.interleaved and loops:
            steps = steps.beside_step(step, closed)
        if cases.staged:
            lasting = np.maximum(1.0 - others * cases.stages * growth, STEADIEST)
            uneven = np.where(closed | (cases.stages == 1.0), 0.0, beside) / lasting
            step = cases.decode(np.minimum(seen + cases.longest_of * np.sqrt(uneven), slots))
        arriving = others * cases.ranks if cases.lockstep else others
        # Prompts that come to the replica of a request while it is there.
        present = others * cases.lanes * (decode + met.prefill_s)
        meeting = arriving * met_share(present, cases.others_take) if cases.balances else arriving
        met = meetings(cases, meeting, step, tpot, steps, met.chunks)
        mean, delay = met.mean_s, met.delay_s
        interference = np.minimum(1.0 - step / mean, LONGEST_PROMPTS)
        earlier, before, moved = before, moved, kept * (mean - tpot)
        rises = mean >= tpot
        below = np.where(rises, np.maximum(below, tpot), below)
        # A leap over a riser of the stair of step times ends far beyond the solution: back to where it began.
        beyond = ~closed & (mean < (1.0 - OVERSHOT) * tpot)
        leap_batch, leap_tpot = np.where(rises, seen, leap_batch), np.where(rises, mean, leap_tpot)
        tpot, seen = np.where(beyond, leap_tpot, tpot + moved), np.where(beyond, leap_batch, seen)
        if iteration in LEAPS:
            tpot = np.clip(tpot + _leap(earlier, before, moved), alone, full / (1.0 - interference))
        tpot = np.maximum(tpot, below * kept_below)
        if not loops and iteration < ITERATIONS - 1:
            continue
        service = cases.fixed + met.first_s + met.prefill_s
        if iteration == ITERATIONS - 1:
            longest = _longest(cases, meeting, full, met.chunks)
        queue = budget_wait(cases, arriving, steps, decode + service)
        queue = queue + slot_wait(cases, through, tpot, alone, longest, service)
        wait = _damped(cases, met, wait, queue)
    busy = np.maximum(meeting * delay / MOST_INTERFERENCE, arriving * steps.full / MOST_FILLED)
    stable = closed | (through * longest <= slots) & (busy < 1.0)
    spread = np.where(closed, 0.0, _spread(cases, through, tpot, alone, seen, uneven, delay, interference))
    last = _last_tpot(cases, step, tpot, met.begun)
    running = np.where(cases.decodes, step, met.running_s)
    means = _means(cases, through, tpot, spread, running, service, wait, stable)
    return replace(means, last_tpot_s=last * cases.steps_per_token)


def _bunching(cases: Cases, alone: Array, full: Array) -> tuple[Array, Array]:
    """Seconds that one more sequence adds to a request's decodes; sequences that bunch a second of prefill.

    Arrivals bunch: prefills come before the decodes that they make longer, so batches vary by more than those
    of a shared processor, by the work of a prompt over that which one more sequence adds to decodes.
    """
    growth = np.maximum(cases.gaps * (full - alone) / np.maximum(cases.slots - 1.0, 1.0), 1e-9)
    return growth, np.where(cases.closed | cases.in_turn, 0.0, 1.0 / growth) / cases.stages


def _damped(cases: Cases, met: Meetings, wait: Array, queue: Array) -> Array:
    """The wait of the next iteration, s: of closed loops a mean with the one before."""
    if met.begun is not None:
        queue = np.where(cases.together & (cases.clients <= cases.slots), met.begun.wait_s, queue)
    return np.where(cases.closed, DAMPING * wait + (1 - DAMPING) * queue, queue) if cases.loops else queue


def _longest(cases: Cases, meeting: Array, full: Array, chunks: Array) -> Array:
    """Decode time of a request beside as many as slots hold, s; no use is made of that of closed loops.

    Prompts delay this batch by what they add to its own step, not to that of the present batch: their share
    of a step's time falls where the present batch comes to a riser of the stair of step times.
    """
    if np.all(cases.closed):
        return cases.gaps * full
    steps = cases.prefills(cases.slots)
    delay = meetings(cases, meeting, full, full, steps, chunks).delay_s
    tpot = full / (1.0 - np.minimum(meeting * delay, MOST_INTERFERENCE))
    # From above: prompts share steps that are longer than those without them.
    return cases.gaps * meetings(cases, meeting, full, tpot, steps, chunks).mean_s


def _last_tpot(cases: Cases, step: Array, tpot: Array, begun: BegunTogether | None) -> Array:
    """TPOT of the last requests of clients whose run ends, s."""
    last = np.where(cases.closed, 0.5 * (step + tpot), tpot)
    return last if begun is None else np.where(cases.together, begun.last_tpot_s, last)


def highest_stable_rate(
    table: IterationTable | StepCases | SpeculativeCases, load: Load, limits: Limits
) -> Array:
    """Requests a second above which no case of `steady_state` is stable; see there for the arguments.

    Slots would not free fast enough even without prefills, or prompts would not fit even beside few decodes.
    """
    cases = Cases(table.cases if isinstance(table, IterationTable) else table, load, limits)
    slots = cases.slots
    by_slots = slots / (cases.gaps * cases.decode(slots))
    by_prompts = MOST_FILLED / (cases.ranks * cases.prefills(np.ones_like(slots)).full)
    return np.minimum(by_slots, by_prompts) * cases.lanes


def _leap(earlier: Array, before: Array, moved: Array) -> Array:
    """Sum of the remaining terms of a geometric series after the last three moves (Aitken).

    The smaller of two ratios counts: a riser of the stair of step times makes one move nearly as long as the
    one before, and a leap by that ratio would end beyond the least solution.
    """
    ratio = np.minimum(_ratio(moved, before), _ratio(before, earlier))
    return np.where((ratio > 0.0) & (ratio < 0.995), moved * ratio / (1.0 - np.clip(ratio, 0.0, 0.995)), 0.0)


def _ratio(after: Array, before: Array) -> Array:
    return after / np.where(before == 0.0, np.inf, before)


def _spread(
    cases: Cases,
    through: Array,
    tpot: Array,
    alone: Array,
    seen: Array,
    uneven: Array,
    delay: Array,
    interference: Array,
) -> Array:
    """Standard deviation of TPOT at a rate of Poisson arrivals.

    A request sees the mean batch over its own decoding: two thirds of the variance of the batch (that of a
    shared processor), a triangle of weights over arrivals. The prompts that delay it arrive meanwhile; their
    number has correlation ``CORRELATED`` with that batch. Accepted drafts vary the steps of a request.
    """
    arrivals = through * tpot * cases.gaps
    deviation = np.sqrt(arrivals / cases.shared * tpot / alone + LONGEST_SPREAD * uneven)
    more = np.minimum(seen + np.maximum(deviation, 1.0), cases.slots)
    slope = (cases.decode(more) - cases.decode(seen)) / np.maximum(more - seen, 1e-9)
    batch = AVERAGED * np.where(more > seen, slope, 0.0) * deviation / (1.0 - interference)
    # Prompts of all ranks delay a decode; ``delay`` already counts those of all micro batches.
    prompts = delay * cases.ranks * np.sqrt(arrivals / cases.shared) / cases.gaps
    drafts = tpot * cases.draws
    return np.sqrt(batch**2 + prompts**2 + 2.0 * CORRELATED * batch * prompts + drafts**2)


def _means(
    cases: Cases,
    through: Array,
    tpot: Array,
    spread: Array,
    step: Array,
    service: Array,
    wait: Array,
    stable: NDArray[np.bool_],
) -> Steady:
    """The figures of a converged state."""
    table, lanes = cases.table, cases.lanes
    ranks, stages = cases.ranks, cases.stages
    decode = tpot * cases.gaps
    ttft = service + wait
    ends = np.where(cases.closed, cases.clients / (ttft + decode), cases.arrivals)
    batch = np.clip(through * decode, np.minimum(cases.closed, 1.0), cases.slots)
    prefill, prefill_beside = cases.prefill()
    # All stages of a pipeline together run one micro batch's step in each of these intervals. Without decodes
    # a lone prompt keeps all ranks and stages busy, and more of them fill the same time.
    interval = np.where(cases.decodes, tpot / stages, prefill)
    everywhere = ends * prefill * ranks * stages
    # Between Poisson arrivals a replica without requests idles; batches are larger while it steps.
    waits = -np.expm1(-batch * ranks * stages - everywhere)
    steps = np.where(cases.decodes | (stages > 1), waits, np.minimum(everywhere, 1.0))
    busy = np.where(cases.closed & cases.decodes, 1.0, steps)
    busy = np.maximum(busy, 1e-9)
    computed = cases.output * cases.verified_per_token * cases.decodes + cases.new
    tokens = ends * computed * interval * ranks * stages / busy
    decodes = np.where(cases.decodes, batch * ranks / busy, 0.0)
    idle = table.idle_watts
    watts = idle + busy * (table.watts(tokens, decodes, decodes * cases.keys, interval) - idle)
    return Steady(
        ttft_s=np.where(stable, ttft, np.inf),
        queue_s=np.where(stable, wait, np.inf),
        tpot_s=tpot * cases.steps_per_token,
        tpot_spread_s=spread * cases.steps_per_token,
        batch=batch * stages,
        prefill_s=prefill,
        prefill_beside_s=prefill_beside,
        step_s=step,
        requests_s=ends * lanes,
        output_tokens_s=ends * cases.output * lanes,
        watts=watts,
        stable=stable,
        decode_s=decode,
    )
