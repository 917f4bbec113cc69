"""Steady states of one replica over arrays: latencies and throughput under constant concurrency or a rate.

A request decodes beside the sequences that an arrival finds decoding; every decode token also waits for
prefills of other requests. Under constant concurrency C, a request spends D of its E seconds decoding,
so C D / E sequences decode; at a rate r, r D. TPOT of closed loops is a fixed point, found by damped
iteration with extrapolation; that at a rate is a point of a curve (`RateCurve`). Little's law gives the
throughput. Data-parallel ranks step together: prompts of all ranks make a step longer, and those on different
ranks share one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.steady.begun_together import BegunTogether
from simulator.serving.steady.meetings import Meetings, beside_prompts_only, meetings
from simulator.serving.steady.rate_curve import rate_curve
from simulator.serving.steady.state import Steady, watts
from simulator.serving.steady.steady_cases import Cases, Limits, Load, Steps
from simulator.serving.steady.waits import budget_wait, most_wait
from simulator.serving.steps.table import IterationTable

__all__ = ["Limits", "Load", "Steady", "steady_state"]

Array = NDArray[np.float64]

ITERATIONS = 24
PREFILL_ITERATIONS = 1, 3, 6, 10, 15
"""Iterations that re-price the interference of prefills, which varies little with the batch."""
DAMPING = 0.4
"""Clients are fewer where TPOT is longer."""
LEAPS = 5, 8, 11, 14, 17, 20
"""Iterations before extrapolation to the fixed point."""
LONGEST_PROMPTS = 0.999
"""Maximum share of prompts in a mean step."""


def steady_state(table: IterationTable | Steps, load: Load, limits: Limits) -> Steady:
    """Return the steady state of every case.

    Args:
        table: step times of the replica, or of the replica of each case.
        load: requests on the whole replica, shared evenly by its attention ranks and micro batches: of
            clients in all cases, or at rates. Rates broadcast against the cases, which are few beside them.
        limits: of one rank.
    """
    steps = table.cases if isinstance(table, IterationTable) else table
    if np.any(np.asarray(load.concurrency) > 0.0):
        return _closed(Cases(steps, load, limits))
    curve, rate = rate_curve(steps, load, limits), np.asarray(load.rate, dtype=np.float64)
    shape = np.broadcast_shapes(rate.shape, *(np.shape(value) for value in _figures(load, limits)))
    count = curve.slots.size
    rates = rate.reshape(-1, 1) if count == 1 else np.broadcast_to(rate, (*rate.shape[:-1], count))
    state = curve.at(rates)
    return Steady(**{name: values.reshape(shape) for name, values in vars(state).items()})


def _figures(load: Load, limits: Limits) -> tuple[ArrayLike, ...]:
    return load.prompt, load.output, load.replicas, limits.budget, limits.sequences, limits.kv_tokens


def _closed(cases: Cases) -> Steady:
    """The steady state of clients."""
    clients, slots, gaps = cases.clients, cases.slots, cases.gaps
    seen = np.maximum(np.minimum(clients, slots), 1.0)
    alone, full = cases.decode(np.ones_like(seen)), cases.decode(slots)
    step = cases.decode(seen)
    steps = cases.prefills(seen, step)
    service, wait = cases.fixed + steps.one_chunk + step, np.zeros_like(seen)
    through, tpot = cases.arrivals, step
    other_clients = np.maximum(clients - 1, 0) / np.maximum(clients, 1.0)
    earlier = before = change = np.zeros_like(seen)
    met = Meetings(tpot, steps.one_chunk, steps.one_chunk, step, step, np.ones_like(seen), None)
    for iteration in range(ITERATIONS):
        if iteration in PREFILL_ITERATIONS:
            steps = cases.prefills(seen, step)
        decode = tpot * gaps
        lifetime = np.maximum(service + wait + decode, 1e-9)
        through = np.minimum(clients, slots * (decode + service + wait) / (decode + service)) / lifetime
        others = through * other_clients
        seen = np.minimum(1.0 + others * decode, slots)
        step = cases.decode(seen)
        if cases.interleaved:
            steps = steps.beside_step(step, cases.decodes)
        arriving = others * cases.ranks
        met = meetings(cases, arriving, step, tpot, steps, met)
        met = beside_prompts_only(cases, arriving, steps, met)
        interference = np.minimum(1.0 - step / met.mean_s, LONGEST_PROMPTS)
        earlier, before, change = before, change, (1.0 - DAMPING) * (met.mean_s - tpot)
        tpot = tpot + change
        if iteration in LEAPS:
            tpot = np.clip(tpot + _leap(earlier, before, change), alone, full / (1.0 - interference))
        service = cases.fixed + met.first_s + met.prefill_s
        queue = np.minimum(budget_wait(cases, arriving, steps), most_wait(cases, steps, decode + service))
        queue = queue + np.maximum(clients / slots - 1.0, 0.0) * (tpot * gaps + service)
        if met.begun is not None:
            queue = np.where(cases.together & (clients <= slots), met.begun.wait_s, queue)
        wait = DAMPING * wait + (1 - DAMPING) * queue
    running = np.where(cases.decodes, step, met.running_s)
    last = _last_tpot(cases, step, tpot, met.begun)
    return replace(_means(cases, through, tpot, running, service, wait), last_tpot_s=last)


def _last_tpot(cases: Cases, step: Array, tpot: Array, begun: BegunTogether | None) -> Array:
    """TPOT of the last requests of clients whose run ends, s."""
    last = 0.5 * (step + tpot)
    last = last if begun is None else np.where(cases.together, begun.last_tpot_s, last)
    return last * cases.steps_per_token


def _leap(earlier: Array, before: Array, change: Array) -> Array:
    """Sum of the remaining terms of a geometric series after the last three moves (Aitken).

    The smaller of two ratios counts: a riser of the stair of step times makes one move nearly as long as the
    one before.
    """
    ratio = np.minimum(_ratio(change, before), _ratio(before, earlier))
    return np.where((ratio > 0.0) & (ratio < 0.995), change * ratio / (1.0 - np.clip(ratio, 0.0, 0.995)), 0.0)


def _ratio(after: Array, before: Array) -> Array:
    return after / np.where(before == 0.0, np.inf, before)


def _means(cases: Cases, through: Array, tpot: Array, step: Array, service: Array, wait: Array) -> Steady:
    """The figures of a converged state."""
    decode, ttft = tpot * cases.gaps, service + wait
    ends = cases.clients / (ttft + decode)
    batch = np.clip(through * decode, 1.0, cases.slots)
    prefill, prefill_beside = cases.prefill
    return Steady(
        ttft_s=ttft,
        queue_s=wait,
        tpot_s=tpot * cases.steps_per_token,
        tpot_spread_s=np.zeros_like(tpot),
        batch=batch * cases.stages,
        prefill_s=prefill,
        prefill_beside_s=prefill_beside,
        step_s=step,
        requests_s=ends * cases.lanes,
        output_tokens_s=ends * cases.output * cases.lanes,
        watts=watts(cases, ends, batch, tpot),
        stable=np.ones(tpot.shape, bool),
        decode_s=decode,
    )
