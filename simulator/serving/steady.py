"""Steady states of one replica over arrays: latencies and throughput under constant concurrency or a rate.

A request decodes beside the sequences that an arrival finds decoding; every decode token also waits for
prefills of other requests. Under constant concurrency C, a request spends D of its E seconds decoding,
so C D / E sequences decode; at a rate r, r D. TPOT is a fixed point, found by damped iteration with
extrapolation. Little's law gives the throughput.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.table import IterationTable

Array = NDArray[np.float64]

ITERATIONS = 24
PREFILL_ITERATIONS = 0, 1, 2, 4, 7, 10, 13, 16, 19
"""Iterations in which the interference of prefills is priced again: it varies little with the batch."""
DAMPING = 0.4
LEAPS = 5, 8, 11, 14, 17, 20
"""Iterations before extrapolation to the fixed point."""
MOST_INTERFERENCE = 0.95
"""Share of time that prefills of others may take from decodes."""
MOST_BUNCHING = 0.2
"""Maximum share that bunched arrivals add to a batch."""


@dataclass(frozen=True)
class Load:
    """Requests on one replica, arrays that broadcast.

    Args:
        prompt: mean prompt tokens.
        output: mean output tokens.
        concurrency: requests in the system at any time; 0 where ``rate`` counts.
        rate: requests a second; 0 where ``concurrency`` counts.
        cached: prompt tokens found in the prefix cache.
        variation: variance of the output lengths over the square of their mean. A sequence that is met while
            it decodes is a long one more often, and so holds more context.
    """

    prompt: ArrayLike
    output: ArrayLike
    concurrency: ArrayLike = 0.0
    rate: ArrayLike = 0.0
    cached: ArrayLike = 0.0
    variation: ArrayLike = 0.0


@dataclass(frozen=True)
class Limits:
    """Limits of a replica's steps, arrays that broadcast.

    Args:
        budget: query tokens of a step on one rank.
        sequences: decoding sequences of one rank.
        kv_tokens: KV tokens of one rank.
    """

    budget: ArrayLike
    sequences: ArrayLike
    kv_tokens: ArrayLike


@dataclass(frozen=True)
class Steady:
    """Means of a steady state, arrays of one shape."""

    ttft_s: Array
    """Of a request that meets a busy replica: fixed part, running step, own prefill, queue."""
    queue_s: Array
    """Part of it before the first own step: for a slot, for memory, for prefills of others."""
    tpot_s: Array
    batch: Array
    """Decoding sequences of one rank."""
    prefill_s: Array
    """Prefill of one prompt on an otherwise idle replica."""
    step_s: Array
    """A pure decode step."""
    requests_s: Array
    """Requests a second of the whole replica."""
    output_tokens_s: Array
    watts: Array
    """Of the replica's devices, hosts not counted."""
    stable: NDArray[np.bool_]
    """False where the queue grows without end at the asked rate."""

    @property
    def e2e_s(self) -> Array:
        """Mean end-to-end latency."""
        return self.ttft_s + self.decode_s

    decode_s: Array
    """From first to last token."""


class _Cases:
    """Loads and limits of one attention rank, as arrays of one shape, and the steps of its prompts."""

    def __init__(self, table: IterationTable, load: Load, limits: Limits) -> None:
        given = (
            *(load.prompt, load.output, load.concurrency, load.rate, load.cached, load.variation),
            *(limits.budget, limits.sequences, limits.kv_tokens),
        )
        prompt, output, concurrency, rate, cached, variation, budget, slots, room = np.broadcast_arrays(
            *(np.asarray(value, dtype=np.float64) for value in given)
        )
        engine, pool = table.price.engine, table.price.pool
        self.lanes = pool.data * pool.pipeline
        """Batches in flight: one an attention rank and pipeline stage."""
        self.table, self.output = table, output
        self.closed = concurrency > 0
        self.clients = np.maximum(concurrency / self.lanes, 1e-9)
        self.arrivals = rate / self.lanes
        self.new = np.maximum(prompt - cached, 1.0)
        """Prompt tokens to compute."""
        self.keys = prompt + 0.5 * (1.0 + variation) * output
        """Mean context of a decoding sequence."""
        self.slots = np.maximum(np.minimum(slots, room / (prompt + output)) / pool.pipeline, 1.0)
        """Most sequences that decode together; the micro batches of a pipeline share a rank's KV blocks."""
        self.gaps = np.maximum(output - 1.0, 1e-9)
        self.chunks = np.ceil(self.new / np.minimum(self.new, budget))
        self.chunk = self.new / self.chunks
        self.before = cached + 0.5 * (self.new - self.chunk)
        """Mean context before a chunk."""
        self.most = np.maximum(np.floor(budget / self.chunk), 1.0)
        """Prompts that one step computes, at most."""
        self.interleaved = engine.scheduler.value not in ("prefill-first", "static")
        """Whether prefill chunks share steps with decodes."""
        self.ahead = float(engine.schedules_ahead.value)
        fixed = engine.first_token_s.value + table.price.times.first_token_s
        self.fixed = fixed + engine.first_token_per_token_s.value * self.new
        """Part of TTFT that no step explains, s."""

    def prefills(self, batch: Array) -> tuple[Array, Array]:
        """Elapsed time of a step with one prompt's chunk, and of each further prompt in it."""
        decoding = batch if self.interleaved else np.zeros_like(batch)
        one = self.table.mixed_seconds(self.chunk, self.before, decoding, self.keys)
        two = self.table.mixed_seconds(2 * self.chunk, self.before, decoding, self.keys, 2.0)
        return one, np.where(self.most > 1, np.maximum(two - one, 0.0), one)

    def prefill_alone(self) -> Array:
        """Seconds of one prompt's steps on an idle replica."""
        none = np.zeros_like(self.new)
        return self.chunks * self.table.mixed_seconds(self.chunk, self.before, none, self.keys)

    def decode(self, batch: Array) -> Array:
        """Seconds of a pure decode step."""
        return self.table.decode_seconds(batch, self.keys)


def steady_state(table: IterationTable, load: Load, limits: Limits) -> Steady:
    """Return the steady state of every case.

    Args:
        table: step times of the replica.
        load: requests on the whole replica, shared evenly by its attention ranks and micro batches.
        limits: of one rank.
    """
    cases = _Cases(table, load, limits)
    closed, clients, slots, gaps = cases.closed, cases.clients, cases.slots, cases.gaps
    seen = np.where(closed, np.maximum(np.minimum(clients, slots), 1.0), 1.0)
    alone, full = cases.decode(np.ones_like(seen)), cases.decode(slots)
    step = tpot = cases.decode(seen)
    one, further = cases.prefills(seen)
    service, wait = cases.fixed + one + step, np.zeros_like(seen)
    through, stable = cases.arrivals, np.ones(seen.shape, dtype=bool)
    delay = prefill = one
    # Arrivals bunch: prefills come before the decodes that they make longer, so batches vary by more than
    # those of a shared processor, by the work of a prompt over that which one more sequence adds to decodes.
    growth = np.maximum(gaps * (full - alone) / np.maximum(slots - 1.0, 1.0), 1e-9)
    bunching = np.where(closed, 0.0, 1.0 / growth)
    before = moved = np.zeros_like(seen)
    for iteration in range(ITERATIONS):
        if iteration in PREFILL_ITERATIONS:
            one, further = cases.prefills(seen)
        decode = tpot * gaps
        lifetime = np.maximum(service + wait + decode, 1e-9)
        served = np.minimum(clients, slots * (decode + service + wait) / (decode + service))
        through = np.where(closed, served / lifetime, cases.arrivals)
        others = through * np.where(closed, np.maximum(clients - 1, 0) / np.maximum(clients, 1.0), 1.0)
        beside = others * decode
        seen = np.minimum(1.0 + beside + np.minimum(bunching * delay, MOST_BUNCHING * beside), slots)
        step = cases.decode(seen)
        prefill, delay, first = _prompts(cases, others, step, tpot, one, further)
        interference = np.minimum(others * delay, MOST_INTERFERENCE)
        before, moved = moved, (1 - DAMPING) * (step / (1.0 - interference) - tpot)
        longest = gaps * full / (1.0 - interference)
        stable = closed | (through * longest <= slots) & (others * delay < MOST_INTERFERENCE)
        tpot = tpot + moved
        if iteration in LEAPS:
            tpot = np.clip(tpot + _leap(before, moved), alone, full / (1.0 - interference))
        service = cases.fixed + first + prefill
        queue = _budget_wait(cases, others, one, further) + _slot_wait(
            cases, through, tpot, alone, longest, service
        )
        wait = DAMPING * wait + (1 - DAMPING) * queue
    return _means(cases, through, tpot, step, service, wait, stable)


def _leap(before: Array, moved: Array) -> Array:
    """What all later moves of a geometric series add to the last (Aitken)."""
    ratio = moved / np.where(before == 0.0, np.inf, before)
    return np.where((ratio > 0.0) & (ratio < 0.995), moved * ratio / (1.0 - np.clip(ratio, 0.0, 0.995)), 0.0)


def _prompts(
    cases: _Cases, others: Array, step: Array, tpot: Array, one: Array, further: Array
) -> tuple[Array, Array, Array]:
    """A prompt's own steps, the delay of decodes a prompt, and the wait for steps that run already.

    Prompts that arrive during one step are computed together in the next.
    """
    if cases.interleaved:
        window = tpot
    else:
        busy = np.minimum(others * one, 0.9)
        window = step * (1.0 - busy) + one * busy
    arriving = np.minimum(others * window, cases.most - 1.0 + 1e-9)
    together = np.clip(arriving / -np.expm1(-np.maximum(arriving, 1e-9)), 1.0, cases.most)
    length = one + (together - 1.0) * further
    delay = cases.chunks * (length - step if cases.interleaved else length) / together
    # A round of a pipeline takes as long as the longest step in it: prompts of any micro batch delay all.
    own = np.clip(-np.expm1(-others * window), 1e-9, 1.0 - 1e-9)
    delay = delay * -np.expm1(cases.table.stages * np.log1p(-own)) / own
    prefill = cases.chunks * (one + arriving * further)
    share = np.minimum(others * cases.chunks * length / together, 1.0)
    running = (1.0 - share) * step + share * length
    following = 1.0 / ((1.0 - share) / step + share / length)
    meets = -np.expm1(-others * (tpot * cases.gaps + prefill))
    return prefill, np.maximum(delay, 0.0), meets * (0.5 * running + cases.ahead * following)


def _budget_wait(cases: _Cases, others: Array, one: Array, further: Array) -> Array:
    """Wait for the prompts of others where steps are full (M/D/1)."""
    own = cases.chunks * (one + (cases.most - 1.0) * further) / cases.most
    busy = np.clip(others * own, 0.0, 0.95)
    wait = 0.5 * busy ** (np.sqrt(2.0 * cases.most + 2.0) - 1.0) / (1.0 - busy) * own
    bound = 0.5 * np.maximum(cases.clients - 1.0, 0.0) * own
    return np.where(cases.closed, np.minimum(wait, bound), wait)


def _slot_wait(
    cases: _Cases, through: Array, tpot: Array, alone: Array, longest: Array, service: Array
) -> Array:
    """Wait for a slot: of clients beyond them, or of arrivals that find all of them in use.

    The number of decoding sequences varies as that of a shared processor does (negative binomial, its
    variance 1 / (1 - load) of the mean); beyond the slots it falls off geometrically.
    """
    slots = cases.slots
    mean = through * tpot * cases.gaps
    spread = np.sqrt(mean * tpot / alone) + 1e-9
    z = np.clip((slots - mean) / spread, -4.0, 8.0)
    density = np.exp(-0.5 * z * z) / 2.5066 / spread * (1.0 + np.exp(-1.702 * z))
    ratio = np.clip(through * longest / slots, 0.0, 0.98)
    full = density / (1.0 - ratio)
    arrivals = np.maximum(through, 1e-9)
    opened = 0.5 * full / (1.0 + full) * ratio / (1.0 - ratio) / arrivals
    beyond = np.maximum(cases.clients / slots - 1.0, 0.0) * (tpot * cases.gaps + service)
    return np.where(cases.closed, beyond, opened)


def _means(
    cases: _Cases,
    through: Array,
    tpot: Array,
    step: Array,
    service: Array,
    wait: Array,
    stable: NDArray[np.bool_],
) -> Steady:
    """The figures of a converged state."""
    table, lanes = cases.table, cases.lanes
    ranks, stages = table.price.pool.data, table.stages
    decode = tpot * cases.gaps
    ttft = service + wait
    ends = np.where(cases.closed, cases.clients / (ttft + decode), cases.arrivals)
    batch = np.clip(through * decode, np.minimum(cases.closed, 1.0), cases.slots)
    tokens = ends * (cases.output + cases.new) * tpot * ranks
    # All stages of a pipeline together run one micro batch's step in each of these intervals.
    interval = tpot / stages
    watts = table.power.watts(tokens, batch * ranks, batch * cases.keys * ranks, interval, hosts=False)
    return Steady(
        ttft_s=np.where(stable, ttft, np.inf),
        queue_s=np.where(stable, wait, np.inf),
        tpot_s=tpot,
        batch=batch * stages,
        prefill_s=cases.prefill_alone(),
        step_s=step,
        requests_s=ends * lanes,
        output_tokens_s=ends * cases.output * lanes,
        watts=watts,
        stable=stable,
        decode_s=decode,
    )
