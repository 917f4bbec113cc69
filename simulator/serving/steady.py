"""Steady states of one replica over arrays: latencies and throughput under constant concurrency or a rate.

A request decodes beside the sequences that an arrival finds decoding; every decode token also waits for
prefills of other requests. Under constant concurrency C, a request spends D of its E seconds decoding,
so C D / E sequences decode; at a rate r, r D. TPOT is a fixed point, found by damped iteration with
extrapolation. Little's law gives the throughput. Data-parallel ranks step together: prompts of all ranks make
a step longer, and those on different ranks share one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.step_arrays import StepCases
from simulator.serving.table import IterationTable

Array = NDArray[np.float64]

ITERATIONS = 24
PREFILL_ITERATIONS = 0, 1, 3, 6, 10, 15
"""Iterations that re-price the interference of prefills, which varies little with the batch."""
DAMPING = 0.4
LEAPS = 5, 8, 11, 14, 17, 20
"""Iterations before extrapolation to the fixed point."""
MOST_INTERFERENCE = 0.95
"""Share of time that prefills of others may take from decodes."""
MOST_FILLED = 0.98
"""Maximum share of time in steps whose token budget prompts fill."""
MOST_BUNCHING = 0.2
"""Maximum share that bunched arrivals add to a batch."""
AVERAGED = (2.0 / 3.0) ** 0.5
"""Standard deviation of the batch averaged over a request's time, over that of the batch at an instant."""
CORRELATED = 0.5 / AVERAGED
"""Correlation of that average with the number of arrivals in the same time."""


@dataclass(frozen=True)
class Load:
    """Requests on one replica, arrays that broadcast.

    Args:
        prompt: mean prompt tokens.
        output: mean output tokens.
        concurrency: requests in the system at any time; 0 where ``rate`` counts.
        rate: requests a second; 0 where ``concurrency`` counts.
        cached: prompt tokens found in the prefix cache.
        variation: variance of the output lengths over the square of their mean. A sequence found decoding at
            a random time is longer than the mean, and so holds more context.
        prompt_variation: variance of the tokens to prefill over the square of their mean: long prompts make
            others wait longer.
        replicas: equal replicas among which a router balances arrivals: a request waits where all are busy.
    """

    prompt: ArrayLike
    output: ArrayLike
    concurrency: ArrayLike = 0.0
    rate: ArrayLike = 0.0
    cached: ArrayLike = 0.0
    variation: ArrayLike = 0.0
    prompt_variation: ArrayLike = 0.0
    replicas: ArrayLike = 1.0


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
    """TTFT of a request that finds the replica busy: fixed part, running step, own prefill, queue."""
    queue_s: Array
    """Part of TTFT before the request's first step: waits for a slot, for memory and for other prefills."""
    tpot_s: Array
    tpot_spread_s: Array
    """Standard deviation of TPOT over requests, by the batches and prompts met; 0 in closed loops."""
    batch: Array
    """Decoding sequences of one rank."""
    prefill_s: Array
    """Prefill of one prompt on an otherwise idle replica."""
    prefill_beside_s: Array
    """The same when every data-parallel rank prefills a prompt."""
    step_s: Array
    """A pure decode step."""
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


@dataclass(frozen=True)
class Prefills:
    """Step times with prompt chunks, s."""

    chunks: Array
    """Steps of a prompt; the rest of the last one is filled by the next prompt."""
    most: Array
    """Chunks that one step computes on a rank, at most."""
    step: Array
    """Without a chunk."""
    one: Array
    """With one chunk."""
    beside: Array
    """Added by a further chunk on another rank."""
    behind: Array
    """Added by a further chunk when all ranks have a chunk."""
    ranks: Array

    def seconds(self, chunks: Array) -> Array:
        """Step time with ``chunks`` chunks over all ranks."""
        others = np.minimum(chunks, self.ranks) - 1.0
        return self.one + others * self.beside + np.maximum(chunks - self.ranks, 0.0) * self.behind

    def beside_step(self, step: Array) -> Prefills:
        """The same with a slightly different batch, whose own step takes ``step``."""
        return replace(self, step=step, one=self.one + step - self.step)

    @property
    def full(self) -> Array:
        """Seconds of a prompt where all steps are full."""
        most = self.ranks * self.most
        return self.chunks * self.seconds(most) / most


class _Cases:
    """Loads and limits of one attention rank, as arrays of one shape, and the steps of its prompts."""

    def __init__(self, table: StepCases, load: Load, limits: Limits) -> None:
        given = (
            *(load.prompt, load.output, load.concurrency, load.rate, load.cached, load.variation),
            *(load.prompt_variation, load.replicas, limits.budget, limits.sequences, limits.kv_tokens),
        )
        prompt, output, concurrency, rate, cached, variation, varied, replicas, budget, slots, room = (
            np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in given))
        )
        engine = table.engine
        self.ranks, self.stages = table.ranks, table.stages
        self.lanes = table.ranks * table.stages
        """Batches in flight: one an attention rank and pipeline stage."""
        self.table, self.output = table, output
        self.shared = self.lanes * replicas
        """Batches in flight among which arrivals are balanced."""
        self.varied = varied
        self.closed = concurrency > 0
        self.clients = np.maximum(concurrency / self.lanes, 1e-9)
        self.arrivals = rate / self.lanes
        self.new = np.maximum(prompt - cached, 1.0)
        """Prompt tokens to compute."""
        self.arrives = self.closed & (self.new <= 1.0)
        """Whether the KV of the prompt comes from a prefill replica: its last token is one more decode. At a
        rate it stays a prompt of one token, as on the event engine."""
        self.keys = prompt + 0.5 * (1.0 + variation) * output
        """Mean context of a decoding sequence."""
        self.slots = np.maximum(np.minimum(slots, room / (prompt + output)) / table.stages, 1.0)
        """Most sequences that decode together; the micro batches of a pipeline share a rank's KV blocks."""
        self.gaps = np.maximum(output - 1.0, 1e-9)
        self.cached, self.budget = cached, budget
        self.interleaved = engine.scheduler.value not in ("prefill-first", "static")
        """Whether prefill chunks share steps with decodes."""
        self.ahead = float(engine.schedules_ahead.value)
        fixed = engine.first_token_s.value + table.fixed_s
        self.fixed = fixed + engine.first_token_per_token_s.value * self.new
        """Part of TTFT outside of steps, s."""

    def prefills(self, batch: Array) -> Prefills:
        """Steps with prompts beside a batch, whose tokens count towards the budget."""
        decoding = batch if self.interleaved else np.zeros_like(batch)
        room = np.maximum(self.budget - decoding, 1.0)
        chunk = np.minimum(self.new, room)
        before = self.cached + 0.5 * (self.new - chunk)

        # One prompt; one on every rank; two on every rank.
        single = bool(np.all(self.ranks == 1.0))
        axis = (-1,) + (1,) * chunk.ndim
        prompts = np.array([1.0, 2.0] if single else [1.0, 1.0, 2.0]).reshape(axis)
        most = np.broadcast_to(self.ranks, chunk.shape)
        ranks = None if single else np.stack([np.ones_like(chunk), most, most])
        steps = self.table.mixed_seconds(prompts * chunk, before, decoding, self.keys, prompts, ranks)
        one, every, two = steps[0], steps[-2], steps[-1]
        beside = np.maximum(every - one, 0.0) / np.maximum(self.ranks - 1.0, 1.0)
        behind = np.maximum(two - every, 0.0) / self.ranks
        step = self.decode(batch)
        one = np.where(self.arrives, step, one)
        beside, behind = (np.where(self.arrives, 0.0, more) for more in (beside, behind))
        return Prefills(self.new / chunk, room / chunk, step, one, beside, behind, self.ranks)

    def prefill(self) -> tuple[Array, Array]:
        """Seconds of a prompt's steps without decodes: on one rank, and where every rank has one."""
        steps = self.prefills(np.zeros_like(self.new))
        return steps.chunks * steps.one, steps.chunks * steps.seconds(self.ranks)

    def decode(self, batch: Array) -> Array:
        """Seconds of a pure decode step."""
        return self.table.decode_seconds(batch, self.keys)


def steady_state(table: IterationTable | StepCases, load: Load, limits: Limits) -> Steady:
    """Return the steady state of every case.

    Args:
        table: step times of the replica, or of the replica of each case.
        load: requests on the whole replica, shared evenly by its attention ranks and micro batches.
        limits: of one rank.
    """
    cases = _Cases(table if isinstance(table, StepCases) else table.cases, load, limits)
    closed, clients, slots, gaps = cases.closed, cases.clients, cases.slots, cases.gaps
    seen = np.where(closed, np.maximum(np.minimum(clients, slots), 1.0), 1.0)
    alone, full = cases.decode(np.ones_like(seen)), cases.decode(slots)
    step = tpot = cases.decode(seen)
    steps = cases.prefills(seen)
    service, wait = cases.fixed + steps.one + step, np.zeros_like(seen)
    through, stable = cases.arrivals, np.ones(seen.shape, dtype=bool)
    delay = prefill = steps.one
    # Arrivals bunch: prefills come before the decodes that they make longer, so batches vary by more than
    # those of a shared processor, by the work of a prompt over that which one more sequence adds to decodes.
    growth = np.maximum(gaps * (full - alone) / np.maximum(slots - 1.0, 1.0), 1e-9)
    bunching = np.where(closed, 0.0, 1.0 / growth)
    before = moved = interference = np.zeros_like(seen)
    for iteration in range(ITERATIONS):
        if iteration in PREFILL_ITERATIONS:
            steps = cases.prefills(seen)
        decode = tpot * gaps
        lifetime = np.maximum(service + wait + decode, 1e-9)
        served = np.minimum(clients, slots * (decode + service + wait) / (decode + service))
        through = np.where(closed, served / lifetime, cases.arrivals)
        others = through * np.where(closed, np.maximum(clients - 1, 0) / np.maximum(clients, 1.0), 1.0)
        beside = others * decode
        seen = np.minimum(1.0 + beside + np.minimum(bunching * delay, MOST_BUNCHING * beside), slots)
        step = cases.decode(seen)
        if cases.interleaved:
            steps = steps.beside_step(step)
        arriving = others * cases.ranks
        prefill, delay, first = _prompts(cases, arriving, step, tpot, steps)
        taken = arriving * delay
        # In a closed loop the prompts of one step follow from the clients, however long the step is.
        mean = np.where(closed, step + taken * tpot, step / (1.0 - np.minimum(taken, MOST_INTERFERENCE)))
        interference = 1.0 - step / mean
        before, moved = moved, (1 - DAMPING) * (mean - tpot)
        longest = gaps * full / (1.0 - interference)
        busy = np.maximum(arriving * delay / MOST_INTERFERENCE, arriving * steps.full / MOST_FILLED)
        stable = closed | (through * longest <= slots) & (busy < 1.0)
        tpot = tpot + moved
        if iteration in LEAPS:
            tpot = np.clip(tpot + _leap(before, moved), alone, full / (1.0 - interference))
        service = cases.fixed + first + prefill
        queue = _budget_wait(cases, arriving, steps, decode + service) + _slot_wait(
            cases, through, tpot, alone, longest, service
        )
        wait = DAMPING * wait + (1 - DAMPING) * queue
    spread = np.where(closed, 0.0, _spread(cases, through, tpot, alone, seen, delay, interference))
    return _means(cases, through, tpot, spread, step, service, wait, stable)


def highest_stable_rate(table: IterationTable | StepCases, load: Load, limits: Limits) -> Array:
    """Requests a second above which no case of `steady_state` is stable; see there for the arguments.

    Slots would not free fast enough even without prefills, or prompts would not fit even beside few decodes.
    """
    cases = _Cases(table if isinstance(table, StepCases) else table.cases, load, limits)
    slots, one = cases.slots, np.ones_like(cases.slots)
    by_slots = slots / (cases.gaps * cases.decode(slots))
    by_prompts = MOST_FILLED / (cases.ranks * cases.prefills(one).full)
    return np.minimum(by_slots, by_prompts) * cases.lanes


def _leap(before: Array, moved: Array) -> Array:
    """Sum of the remaining terms of a geometric series after the last move (Aitken)."""
    ratio = moved / np.where(before == 0.0, np.inf, before)
    return np.where((ratio > 0.0) & (ratio < 0.995), moved * ratio / (1.0 - np.clip(ratio, 0.0, 0.995)), 0.0)


def _prompts(
    cases: _Cases, arriving: Array, step: Array, tpot: Array, steps: Prefills
) -> tuple[Array, Array, Array]:
    """Seconds of a prompt's own steps, of the delay of decodes per prompt, and of the wait for running steps.

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
        busy = np.minimum(arriving * steps.one, 0.9)
        window = step * (1.0 - busy) + steps.one * busy
    most = steps.ranks * steps.most
    met = np.minimum(arriving * window * np.where(steps.ranks > 1.0, steps.chunks, 1.0), most - 1.0 + 1e-9)
    together = np.clip(met / -np.expm1(-np.maximum(met, 1e-9)), 1.0, most)
    length = steps.seconds(together)
    delay = steps.chunks * (length - step if cases.interleaved else length) / together
    delay = np.where(cases.arrives, 0.0, delay)
    # A round of a pipeline takes as long as the longest step in it: prompts of any micro batch delay all.
    own = np.clip(-np.expm1(-arriving * window), 1e-9, 1.0 - 1e-9)
    delay = delay * -np.expm1(cases.stages * np.log1p(-own)) / own
    # The last step of a prompt computes what is left of it, beside decodes and prompts on other ranks.
    count = np.ceil(steps.chunks) if cases.interleaved else steps.chunks
    prefill = count * steps.seconds(1.0 + met) - (count - steps.chunks) * (steps.one - steps.step)
    share = np.minimum(arriving * steps.chunks * length / together, 1.0)
    running = (1.0 - share) * step + share * length
    following = 1.0 / ((1.0 - share) / step + share / length)
    meets = -np.expm1(-arriving * (tpot * cases.gaps + prefill))
    return prefill, np.maximum(delay, 0.0), meets * (0.5 * running + cases.ahead * following)


def _budget_wait(cases: _Cases, arriving: Array, steps: Prefills, running: Array) -> Array:
    """Wait for the prompts of others where steps are full: M/D/c, of varied prompts Pollaczek-Khinchine's
    factor above it. Clients wait for two prompts, or until all clients' prompts are computed once.

    Args:
        cases: the loads.
        arriving: other prompts a second, on all ranks.
        steps: steps with prompts.
        running: seconds of a request without the wait.
    """
    busy = np.clip(arriving * steps.full, 0.0, MOST_FILLED)
    servers = cases.shared / cases.lanes * steps.ranks * steps.most
    wait = 0.5 * busy ** (np.sqrt(2.0 * servers + 2.0) - 1.0) / (1.0 - busy) * steps.full
    wait = wait * (1.0 + cases.varied) * cases.lanes / cases.shared
    others = np.maximum(cases.clients - 1.0, 0.0) * steps.ranks * steps.full
    bound = np.minimum(0.5 * others, np.maximum(others - running, 2.0 * steps.full))
    return np.where(cases.closed, np.minimum(wait, bound), wait)


def _spread(
    cases: _Cases,
    through: Array,
    tpot: Array,
    alone: Array,
    seen: Array,
    delay: Array,
    interference: Array,
) -> Array:
    """Standard deviation of TPOT at a rate of Poisson arrivals.

    A request sees the mean batch over its own decoding: two thirds of the variance of the batch (that of a
    shared processor), a triangle of weights over arrivals. The prompts that delay it arrive meanwhile; their
    number has correlation ``CORRELATED`` with that batch.
    """
    arrivals = through * tpot * cases.gaps
    deviation = np.sqrt(arrivals / cases.shared * tpot / alone)
    more = np.minimum(seen + np.maximum(deviation, 1.0), cases.slots)
    slope = (cases.decode(more) - cases.decode(seen)) / np.maximum(more - seen, 1e-9)
    batch = AVERAGED * np.where(more > seen, slope, 0.0) * deviation / (1.0 - interference)
    prompts = delay * np.sqrt(arrivals * cases.lanes**2 / cases.shared) / cases.gaps
    return np.sqrt(batch**2 + prompts**2 + 2.0 * CORRELATED * batch * prompts)


def _slot_wait(
    cases: _Cases, through: Array, tpot: Array, alone: Array, longest: Array, service: Array
) -> Array:
    """Wait for a slot: of clients beyond them, or of arrivals that find all of them in use.

    The number of decoding sequences varies as that of a shared processor does (negative binomial, its
    variance 1 / (1 - load) of the mean); beyond the slots it falls off geometrically. Ranks, micro
    batches and replicas share arrivals, each of which goes to a free slot.
    """
    slots, arrivals = cases.slots * cases.shared, np.maximum(through * cases.shared, 1e-9)
    mean = arrivals * tpot * cases.gaps
    spread = np.sqrt(mean * tpot / alone) + 1e-9
    z = np.clip((slots - mean) / spread, -4.0, 8.0)
    density = np.exp(-0.5 * z * z) / 2.5066 / spread * (1.0 + np.exp(-1.702 * z))
    ratio = np.clip(arrivals * longest / slots, 0.0, 0.98)
    full = density / (1.0 - ratio)
    opened = 0.5 * full / (1.0 + full) * ratio / (1.0 - ratio) / arrivals
    beyond = np.maximum(cases.clients / cases.slots - 1.0, 0.0) * (tpot * cases.gaps + service)
    return np.where(cases.closed, beyond, opened)


def _means(
    cases: _Cases,
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
    tokens = ends * (cases.output + cases.new) * tpot * ranks
    # All stages of a pipeline together run one micro batch's step in each of these intervals.
    interval = tpot / stages
    # Between Poisson arrivals a replica without sequences idles; batches are larger while it steps.
    busy = np.where(cases.closed, 1.0, np.maximum(-np.expm1(-batch * ranks * stages), 1e-9))
    decodes = batch * ranks / busy
    idle = table.idle_watts
    stepping = table.watts(tokens / busy, decodes, decodes * cases.keys, interval)
    watts = idle + busy * (stepping - idle)
    prefill, prefill_beside = cases.prefill()
    return Steady(
        ttft_s=np.where(stable, ttft, np.inf),
        queue_s=np.where(stable, wait, np.inf),
        tpot_s=tpot,
        tpot_spread_s=spread,
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
