"""Steady states of one replica over arrays: latencies and throughput under constant concurrency or a rate.

B sequences decode together; every decode token also waits for the prefills of others. Under constant
concurrency C, a request spends D of its E seconds decoding, so B = C D / E; the pair (B, TPOT) is a fixed
point, found by damped iteration. Little's law gives the throughput.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.table import IterationTable

Array = NDArray[np.float64]

ITERATIONS = 20
PREFILL_ITERATIONS = 0, 1, 2, 4, 7, 11, 16
"""Iterations in which the interference of prefills is priced again: it varies little with the batch."""
DAMPING = 0.4


@dataclass(frozen=True)
class Load:
    """Requests on one replica, arrays that broadcast.

    Args:
        prompt: mean prompt tokens.
        output: mean output tokens.
        concurrency: requests in the system at any time; 0 where ``rate`` counts.
        rate: requests a second; 0 where ``concurrency`` counts.
        cached: prompt tokens found in the prefix cache.
    """

    prompt: ArrayLike
    output: ArrayLike
    concurrency: ArrayLike = 0.0
    rate: ArrayLike = 0.0
    cached: ArrayLike = 0.0


@dataclass(frozen=True)
class Limits:
    """What bounds the steps of a replica, arrays that broadcast.

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
            *(load.prompt, load.output, load.concurrency, load.rate, load.cached),
            *(limits.budget, limits.sequences, limits.kv_tokens),
        )
        prompt, output, concurrency, rate, cached, budget, slots, room = np.broadcast_arrays(
            *(np.asarray(value, dtype=np.float64) for value in given)
        )
        engine, ranks = table.price.engine, table.price.pool.data
        self.table, self.output = table, output
        self.closed = concurrency > 0
        self.clients = np.maximum(concurrency / ranks, 1e-9)
        self.arrivals = rate / ranks
        self.new = np.maximum(prompt - cached, 1.0)
        """Prompt tokens to compute."""
        self.keys = prompt + 0.5 * output
        """Mean context of a decoding sequence."""
        self.slots = np.maximum(np.minimum(slots, room / (prompt + output)), 1.0)
        """Most sequences that decode together."""
        self.gaps = np.maximum(output - 1.0, 1e-9)
        self.chunks = np.ceil(self.new / np.minimum(self.new, budget))
        self.chunk = self.new / self.chunks
        self.before = cached + 0.5 * (self.new - self.chunk)
        """Mean context before a chunk."""
        self.interleaved = engine.scheduler.value not in ("prefill-first", "static")
        """Whether prefill chunks share steps with decodes."""
        fixed = engine.first_token_s.value + table.price.times.first_token_s
        self.fixed = fixed + engine.first_token_per_token_s.value * self.new
        """Part of TTFT that no step explains, s."""

    def prefill(self, batch: Array) -> tuple[Array, Array]:
        """Elapsed time of one prompt's steps, and the part that delays decodes."""
        decoding = batch if self.interleaved else np.zeros_like(batch)
        steps = self.chunks * self.table.mixed_seconds(self.chunk, self.before, decoding, self.keys)
        return steps, steps - self.chunks * self.decode(batch) if self.interleaved else steps

    def prefill_alone(self) -> Array:
        """Seconds of one prompt's steps on an idle replica."""
        none = np.zeros_like(self.new)
        return self.chunks * self.table.mixed_seconds(self.chunk, self.before, none, self.keys)

    def decode(self, batch: Array) -> Array:
        """Seconds of a pure decode step."""
        return self.table.decode_seconds(batch, self.keys)


def steady_state(table: IterationTable, load: Load, limits: Limits) -> Steady:
    """Return the steady state of each case.

    Args:
        table: step times of the replica.
        load: requests on the whole replica, shared evenly by its attention ranks.
        limits: of one rank.
    """
    cases = _Cases(table, load, limits)
    closed, clients, slots = cases.closed, cases.clients, cases.slots
    first = np.maximum(np.minimum(clients, slots), 1.0)
    batch = np.where(closed, first, 1.0)
    step = tpot = cases.decode(batch)
    own, delay = cases.prefill(batch)
    wait = np.zeros_like(batch)
    stable = np.ones(batch.shape, dtype=bool)
    for iteration in range(ITERATIONS):
        if iteration in PREFILL_ITERATIONS:
            own, delay = cases.prefill(batch)
        step = cases.decode(batch)
        decode = tpot * cases.gaps
        service = cases.fixed + own + step + wait
        lifetime = np.maximum(service + decode, 1e-9)
        served = np.minimum(clients, _capacity(slots, decode, service, wait))
        through = np.where(closed, served / lifetime, cases.arrivals)
        # Prefills of other requests per decode token: a running request brings one prompt a lifetime.
        others = through * np.where(closed, np.maximum(clients - 1, 0) / np.maximum(clients, 1.0), 1.0)
        interference = np.minimum(others * delay, 0.95)
        tpot = DAMPING * tpot + (1 - DAMPING) * step / (1.0 - interference)
        decode = tpot * cases.gaps
        wanted = through * decode
        stable = closed | (wanted <= slots) & (others * delay < 0.95)
        batch = DAMPING * batch + (1 - DAMPING) * np.clip(wanted, np.minimum(1.0, first), slots)
        waits = _wait(closed, clients, slots, through, own, decode, service - wait)
        wait = DAMPING * wait + (1 - DAMPING) * waits
    return _means(cases, batch, tpot, step, own, wait, stable)


def _means(
    cases: _Cases, batch: Array, tpot: Array, step: Array, own: Array, wait: Array, stable: NDArray[np.bool_]
) -> Steady:
    """The figures of a converged state."""
    table, ranks = cases.table, cases.table.price.pool.data
    decode = tpot * cases.gaps
    ttft = cases.fixed + own + step + wait
    ends = np.where(cases.closed, cases.clients / (ttft + decode), cases.arrivals)
    tokens = ends * (cases.output + cases.new) * tpot * ranks
    kv = batch * cases.keys * ranks
    return Steady(
        ttft_s=np.where(stable, ttft, np.inf),
        queue_s=np.where(stable, wait, np.inf),
        tpot_s=tpot,
        batch=batch,
        prefill_s=cases.prefill_alone(),
        step_s=step,
        requests_s=ends * ranks,
        output_tokens_s=ends * cases.output * ranks,
        watts=table.power.watts(tokens, batch * ranks, kv, tpot, hosts=False),
        stable=stable,
        decode_s=decode,
    )


def _capacity(most: Array, decode: Array, service: Array, wait: Array) -> Array:
    """Clients whose requests are being served, at most: slots over the share of service spent decoding."""
    active = np.maximum(service - wait, 1e-9)
    return most * (decode + service) / np.maximum(decode + active, 1e-9)


def _wait(
    closed: NDArray[np.bool_],
    clients: Array,
    most: Array,
    through: Array,
    own: Array,
    decode: Array,
    active: Array,
) -> Array:
    """Seconds before the first own step: for prefills of others (M/D/1), and for a slot if all are busy."""
    busy = np.clip(through * own, 0.0, 0.9)
    prefills = np.minimum(
        0.5 * busy / (1.0 - busy) * own, 0.5 * np.maximum(clients - 1, 0) * own + 1e9 * ~closed
    )
    served = decode + active
    slots = np.where(closed & (clients > most), (clients / most - 1.0) * served, 0.0)
    return prefills + slots
