"""Loads of steady states as arrays of one shape, with the step times of their replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.engines import Engine
from simulator.serving.steady.company import poisson_above
from simulator.serving.steady.kv_room import Growth, grown_fit, reserved_fit
from simulator.serving.steps.speculation_cases import SpeculativeCases
from simulator.serving.steps.step_arrays import StepCases

Array = NDArray[np.float64]
Steps = StepCases | SpeculativeCases
Arrays = TypeVar("Arrays", "Load", "Limits", "Prefills")

SEVERAL = 3.0
"""Prompts of a full step from which on a middle number is priced too: below, the two are a tile apart."""
LEAST_PART = 1.02
"""Prompts of a step that stand for two."""
LONGEST = np.array([0.0, 0.0, 0.564, 0.846, 1.029, 1.163, 1.267, 1.352, 1.424])
"""Expected maximum of as many standard normal numbers."""


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
        together: 1 where clients begin together and all requests have the same lengths, so that prompts that
            filled a step at the start come in one step again: on all ranks, in all micro batches.
    """

    prompt: ArrayLike
    output: ArrayLike
    concurrency: ArrayLike = 0.0
    rate: ArrayLike = 0.0
    cached: ArrayLike = 0.0
    variation: ArrayLike = 0.0
    prompt_variation: ArrayLike = 0.0
    replicas: ArrayLike = 1.0
    together: ArrayLike = 0.0


@dataclass(frozen=True)
class Limits:
    """Limits of a replica's steps, arrays that broadcast.

    Args:
        budget: query tokens of a step on one rank.
        sequences: decoding sequences of one rank.
        kv_tokens: KV tokens of one rank.
        interleaved: whether prompts share steps with decodes in all cases; if None, as the engine does.
    """

    budget: ArrayLike
    sequences: ArrayLike
    kv_tokens: ArrayLike
    interleaved: bool | None = None


@dataclass(frozen=True)
class Prefills:
    """Step times with prompt chunks, s."""

    chunks: Array
    """Steps of a prompt; the rest of the last one is filled by the next prompt."""
    whole_chunks: Array
    """Mean of the number of steps, the last one often short: decodes that take tokens of them vary."""
    rank_chunks: Array
    """Chunks that one step computes on a rank, at most."""
    step: Array
    """Without a chunk."""
    one_chunk: Array
    """With one chunk."""
    beside: Array
    """Added by a further chunk on another rank."""
    behind: Array
    """Added by a second chunk of each rank, for one of them."""
    further: Array
    """Added by the next chunks: up to some of them the host takes longer than the device."""
    beyond: Array
    """Added by every chunk of a long step."""
    spared: Array
    """Seconds by which chunks beyond the second add less to a long step than ``beyond`` each."""
    again: Array
    """Added by a second chunk on the only rank with one, where there are several ranks."""
    lacking: Array
    """Seconds of what the last step of a prompt lacks, for a whole chunk: the first tokens of a step read the
    weights, and take its launches."""
    launches: Array
    """Seconds of launches, or of decodes of other ranks, that one chunk does not fill and further ones do."""
    ranks: Array
    uneven: Array
    """What the longest of a pipeline's full steps exceeds their mean by, over the part of prompts."""

    def seconds(self, chunks: Array) -> Array:
        """Step time with ``chunks`` chunks over all ranks."""
        ranks = self.ranks
        some = (np.minimum(chunks, ranks) - 1.0) * self.beside
        some = self.one_chunk + np.maximum(some - self.launches, np.minimum(some, 0.0))
        some = some + np.minimum(np.maximum(chunks - ranks, 0.0), ranks) * self.behind
        more = np.maximum(chunks - 2.0 * ranks, 0.0)
        few, many = more * self.further, more * self.beyond - self.spared
        return some + np.where(self.spared > 0.0, np.maximum(few, many), np.minimum(few, many))

    def uneven_seconds(self, chunks: Array, longest: Array) -> Array:
        """Step time with ``chunks`` chunks, of which one rank has ``longest``."""
        further_s = np.maximum(self.again - self.beside, 0.0)
        return (
            self.seconds(chunks) + np.maximum(longest - np.maximum(chunks / self.ranks, 1.0), 0.0) * further_s
        )

    def beside_step(self, step: Array, decodes: NDArray[np.bool_]) -> Prefills:
        """The same with a slightly different batch of clients, whose own step takes ``step``.

        Prompts of replicas that only prefill have no such batch beside them.
        """
        shift = step - self.step
        beside = np.where(decodes, shift, 0.0)
        return replace(self, step=self.step + shift, one_chunk=self.one_chunk + beside)

    @property
    def growing(self) -> Array:
        """Added by a further chunk to a step that grows up to its limit: weights are read once a step, so the
        first few chunks often add less."""
        return np.where(self.rank_chunks > 2.0, np.maximum(self.behind, self.beyond), self.behind)

    @property
    def full(self) -> Array:
        """Seconds of a prompt where all steps are full; a pipeline waits for its longest step."""
        most_chunks = self.ranks * self.rank_chunks
        seconds = self.seconds(most_chunks)
        return self.chunks * (seconds + self.uneven * np.maximum(seconds - self.step, 0.0)) / most_chunks


class Cases:
    """Loads and limits of one attention rank, as arrays of one shape, and the steps of its prompts."""

    def __init__(self, table: Steps, load: Load, limits: Limits) -> None:
        figures = (
            *(load.prompt, load.output, load.concurrency, load.rate, load.cached, load.variation),
            *(load.prompt_variation, load.replicas, load.together),
            *(limits.budget, limits.sequences, limits.kv_tokens),
        )
        prompt, output, concurrency, rate, cached, variation, varied, replicas, equal, budget, slots, room = (
            np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in figures))
        )
        engine = table.engine
        self.ranks, self.stages = table.ranks, table.stages
        self.staged = bool(np.any(table.stages > 1))
        self.lockstep = bool(np.any(table.ranks > 1))
        self.longest_of = LONGEST[np.minimum(table.stages, len(LONGEST) - 1).astype(np.int64)]
        """Expected deviation of the longest of the micro batches of a pipeline, in standard deviations."""
        self.lanes = table.ranks * table.stages
        """Batches in flight: one an attention rank and pipeline stage."""
        self.table, self.output = table, output
        self.shared = self.lanes * replicas
        """Batches in flight among which arrivals are balanced."""
        self.varied = varied
        self.closed = concurrency > 0
        self.loops = bool(np.any(self.closed))
        self.together = self.closed & (equal > 0)
        self.equal = bool(np.any(self.together))
        self.clients = np.maximum(concurrency / self.lanes, 1e-9)
        self.arrivals = rate / self.lanes
        self.new = np.maximum(prompt - cached, 1.0)
        """Prompt tokens to compute."""
        self.arrives = self.new <= 1.0
        """Whether the KV of the prompt comes from a prefill replica: its last token is one more decode."""
        growth = Growth(prompt, output, varied * self.new**2, variation, np.zeros_like(prompt))
        self.keys = growth.context
        """Mean context of a decoding sequence."""
        fit = self._fit(room, growth)
        self.slots = np.maximum(np.minimum(slots, fit) / table.stages, 1.0)
        """Most sequences that decode together; the micro batches of a pipeline share a rank's KV blocks."""
        tokens = np.maximum(output - 1.0, 1e-9)
        self.gaps = np.maximum((tokens + table.overshoot) / table.pace, 1e-9)
        """Decode steps of a request: one a token, fewer under speculation."""
        self.steps_per_token = self.gaps / tokens
        self.draws = table.draws / np.sqrt(table.pace * tokens)
        """Deviation of the steps of a request over their mean, by accepted drafts (renewal theory)."""
        self.verified_per_token = table.verified / table.pace
        self.cached, self.budget = cached, budget
        self.interleaved = mixes(engine) if limits.interleaved is None else limits.interleaved
        """Whether prefill chunks share steps with decodes."""
        self.beside_prompts = self.slots
        """Most sequences that decode while a prompt comes for each that ends: both take tokens of a step."""
        if self.interleaved:
            tokens_of = table.verified + self.new / self.gaps
            self.beside_prompts = np.clip(self.budget / tokens_of, 1.0, self.slots)
        self.cuts = engine.chunked_prefill.value
        """Whether prompts are cut to fill a step."""
        self.decodes = output >= 2.0
        self.all_decode = bool(np.all(self.decodes))
        self.balanced = np.where(self.closed, 1.0, self.shared)
        """Batches in flight among which random arrivals are balanced."""
        self.others_take = np.where(self.decodes, self.balanced / self.lanes, 1.0)
        """Replicas that take the next prompts while this one decodes."""
        self.balances = bool(np.any(self.balanced > 1.0))
        self.undelayed = self.arrives | ~self.decodes
        """Cases whose prompts delay no decode."""
        self.in_turn = (self.ranks > 1.0) & ~self.undelayed & (not self.interleaved)
        """Cases whose ranks compute prompts in steps without own decodes, beside decodes of other ranks."""
        self.turns = bool(np.any(self.in_turn))
        self._find_prompts_first()
        self.ahead = float(engine.schedules_ahead.value) * (self.stages == 1)
        """Steps planned before the running one ends: not by pipelines."""
        fixed = engine.first_token_s.value + table.fixed_s
        self.fixed = fixed + engine.first_token_per_token_s.value * self.new
        """Part of TTFT outside of steps, s."""
        self._once: Cases | None = None
        """The cases without repetition, where each comes several times."""

    def _find_prompts_first(self) -> None:
        first = ~self.undelayed & ~self.closed & (not self.interleaved)
        self.laned = first & (self.stages > 1.0)
        """Cases of pipelines whose prompts come before decodes, at a rate."""
        self.lanes_first = bool(np.any(self.laned))
        self.spelled = first & (self.ranks == 1.0) & (self.stages == 1.0)
        """Cases of one rank and stage whose prompts come before decodes, at a rate."""
        self.spells = bool(np.any(self.spelled))

    @classmethod
    def repeated(cls, table: Steps, load: Load, limits: Limits, times: int) -> Cases:
        """All cases one after the other, as often as asked; their arrays have one dimension.

        Args:
            table: step times of the replica of each case, or of one replica.
            load, limits: arrays of shape (cases,).
            times: how often each case comes.
        """

        cases = cls(table.repeated(times), _repeated(load, times), _repeated(limits, times))
        cases._once = cls(table, load, limits)
        return cases

    def _fit(self, room: Array, growth: Growth) -> Array:
        """Sequences that the KV blocks of a rank hold."""
        table = self.table
        peak = growth.prompt + growth.output
        growth = growth._replace(beside=table.windows * np.minimum(peak, table.window))
        # Sequences that begin together grow together, to their peaks.
        reserved = room / (peak + growth.beside)
        engine = table.engine
        fits = grown_fit
        if engine.preemption.value == "none" or isinstance(table, SpeculativeCases):
            fits = reserved_fit
        number = fits(room, growth, float(engine.block_tokens.value))
        return np.where(self.together, reserved, number)

    def prefills_alike(self, batch: Array, step: Array) -> Prefills:
        """`prefills` beside batches that are the same each time that a case comes."""
        once = self._once
        if once is None:
            return self.prefills(batch, step)
        count = once.new.size
        return _repeated(once.prefills(batch[:count], step[:count]), batch.size // count)

    def prefills(self, batch: Array, step: Array) -> Prefills:
        """Steps with prompts beside a batch, whose tokens and drafts count towards the budget.

        Args:
            batch: decoding sequences of a rank.
            step: seconds of a step of these alone; see `decode`.
        """
        # A replica that only prefills has no decodes beside prompts.
        decoding = np.where(self.decodes, batch, 0.0) if self.interleaved else np.zeros_like(batch)
        room = np.maximum(self.budget - decoding * self.table.verified, 1.0)
        # A prompt that is not cut and exceeds the room has a step of its own, as far as steps are priced.
        chunk = np.minimum(self.new, room if self.cuts else np.maximum(room, self.table.longest))
        before = self.cached + 0.5 * (self.new - chunk)

        # Prompts of a step hold slots; a budget fills steps evenly, slots with prompts of different lengths.
        # At a rate those that find none wait (`_slot_wait`), so that more arrivals never shorten a step.
        free = np.where(self.closed, self.slots - batch, self.slots)
        free = np.where(self.together, np.minimum(self.clients, self.slots), free)
        fill = room / chunk
        if not self.cuts:
            # Whole prompts of one length, where no decodes vary what they leave.
            equal = self.together | ((~self.decodes | self.spelled | self.laned) & (self.varied == 0.0))
            fill = np.where(equal, np.maximum(np.floor(fill + 1e-9), 1.0), fill)
        most_chunks = np.maximum(np.minimum(fill, free), 1.0)

        # Two prompts on one rank; one; one on every rank; two on every rank; some; as many as a step takes.
        # Where a step takes less than two, what it takes stands for them.
        second = np.where(most_chunks > 1.0, np.clip(most_chunks, LEAST_PART, 2.0), 2.0)
        most_of, several = np.maximum(most_chunks, 2.0), most_chunks >= SEVERAL
        middle = np.where(several, np.sqrt(2.0 * most_of), 2.0)
        single = bool(np.all(self.ranks == 1.0))
        ones = np.ones_like(chunk)
        every = np.broadcast_to(self.ranks, chunk.shape)
        rows = [] if single else [(second, ones)]
        rows += [(ones, ones), *(() if single else ((ones, every),))]
        rows += [(second, every), (middle, every), (most_of, every)]
        prompts, filled = (np.stack(column) for column in zip(*rows, strict=True))
        ranks = None if single else filled
        steps = self.table.mixed_seconds(prompts * chunk, before, decoding, self.keys, prompts, ranks)
        one_chunk, all_, two, half, full = steps[int(not single)], *steps[-4:]
        again = (steps[0] - one_chunk) / (second - 1.0)
        least = np.maximum(self.table.least_mixed_s, np.minimum(one_chunk, step))
        if self.turns:
            # An arrival adds itself to its own rank.
            others = self.table.others_seconds(chunk, before, np.maximum(batch - 1.0, 0.0), self.keys)
            one_chunk = one_chunk + np.where(self.in_turn, others, 0.0)
        launches = np.where(self.in_turn, np.maximum(least - one_chunk, 0.0), 0.0)
        beside = np.maximum(all_ - one_chunk, 0.0) / np.maximum(self.ranks - 1.0, 1.0)
        behind = np.maximum(two - all_, 0.0) / (self.ranks * (second - 1.0))
        long = self.ranks * np.maximum(most_of - middle, 1e-9)
        half = np.clip(half, two, np.maximum(full, two))
        beyond = np.where(most_chunks > 2.0, np.maximum(full - half, 0.0) / long, behind)
        further = (half - two) / (self.ranks * np.maximum(middle - 2.0, 1e-9))
        further = np.where(several, further, beyond)
        spared = np.where(most_chunks > 2.0, beyond * self.ranks * (middle - 2.0) - (half - two), 0.0)
        # Where long steps add more, the chunks before them add no more than the second one did.
        further = np.where(spared > 0.0, np.minimum(further, behind), further)
        one_chunk = np.where(self.arrives, step, one_chunk + launches)
        added = beside, behind, further, beyond, spared, again
        beside, behind, further, beyond, spared, again = (np.where(self.arrives, 0.0, more) for more in added)
        uneven = np.where(
            most_chunks < room / chunk, self.longest_of * np.sqrt(self.varied / most_chunks), 0.0
        )
        mean_steps = _steps_of(self.new / np.maximum(room, chunk), np.sqrt(decoding) / room)
        if self.cuts:
            # A request's own decodes come behind its prompt.
            others = np.maximum(decoding - 1.0, 0.0)
            one_rank = _steps_beside(self.new, self.budget, others, self.table.verified)
        else:
            one_rank = np.ceil(self.new / chunk)
        mean_steps = np.where(self.ranks > 1.0, mean_steps, one_rank)
        chunks, more = self.new / chunk, np.where(self.ranks > 1.0, again, behind)
        lacks = np.maximum(np.ceil(chunks) - chunks, 1e-9)
        lacking = np.minimum(more, np.maximum(one_chunk - least, 0.0) / lacks)
        parts = step, one_chunk, beside, behind, further, beyond, spared, again, lacking, launches
        return Prefills(chunks, mean_steps, most_chunks, *parts, self.ranks, uneven)

    @cached_property
    def prefill(self) -> tuple[Array, Array]:
        """Seconds of a prompt's steps without decodes: on one rank, and where every rank has one."""
        none = np.zeros_like(self.new)
        steps = self.prefills_alike(none, self.decode(none))
        return steps.chunks * steps.one_chunk, steps.chunks * steps.seconds(self.ranks)

    @cached_property
    def decode_steady(self) -> Callable[[Array], Array]:
        """Seconds of a pure decode step of a batch that does not vary."""
        return self.table.decodes_at(self.keys, float(self.slots.max(initial=1.0)))

    @cached_property
    def decode(self) -> Callable[[Array], Array]:
        """Mean seconds of a pure decode step, of a mean batch.

        Batches of random arrivals vary; the fuller the slots are, the less.
        """
        steady = self.decode_steady
        if bool(np.all(self.closed)):
            return steady
        varied = self.table.varying(self.shared).decodes_at(self.keys, float(self.slots.max(initial=1.0)))
        free = 1.0 / np.maximum(self.slots - 1.0, 1e-9)
        fixed = self.closed | (self.slots <= 1.0)

        def seconds(batch: Array) -> Array:
            full = np.where(fixed, 1.0, np.minimum((batch - 1.0) * free, 1.0))
            of_mean = steady(batch)
            return of_mean + (1.0 - full) * (varied(batch) - of_mean)

        return seconds


def _repeated(arrays: Arrays, times: int) -> Arrays:
    """All cases one after the other, as often as asked; numbers are those of all."""
    values = {field.name: getattr(arrays, field.name) for field in fields(arrays)}
    several = {name: np.tile(value, times) for name, value in values.items() if np.ndim(value)}
    return replace(arrays, **several)


def mixes(engine: Engine) -> bool:
    """Whether an engine's steps compute prompts beside decodes."""
    return engine.scheduler.value not in ("prefill-first", "static")


def _steps_beside(new: Array, budget: Array, others: Array, verified: Array | float) -> Array:
    """Mean steps of a prompt that fills what a Poisson number of decodes leaves of a budget.

    Args:
        new, budget: tokens of the prompt, and of a step.
        others: mean number of these decodes.
        verified: tokens of one.
    """
    count = np.ceil(new / np.maximum(budget - others * verified, 1.0) - 1e-9)
    limit = np.floor((budget - new / count) / verified + 1e-9)
    limit_before = np.floor((budget - new / np.maximum(count - 1.0, 0.5)) / verified + 1e-9)
    rise, fall = _chance_above(others, limit), 1.0 - _chance_above(others, limit_before)
    return count + rise - np.where(count > 1.0, fall, 0.0)


def _chance_above(mean: Array, limit: Array) -> Array:
    """`poisson_above` of whole limits, priced where it is no certainty: of few cases."""
    chance = np.array(mean > limit, dtype=np.float64)
    some = np.flatnonzero(np.abs(limit + 0.5 - mean) < 20.0 * (np.sqrt(mean) + 1e-9))
    if some.size:
        chance.flat[some] = poisson_above(np.ravel(mean)[some], np.ravel(limit)[some] + 0.5)
    return chance


def _steps_of(spans: Array, varied: Array) -> Array:
    """Mean steps of a prompt that fills the room of ``spans``; ``varied``: deviation of that room over it."""
    rounded = np.maximum(np.round(spans), 1.0)
    deviations = (spans - rounded) / np.maximum(spans * varied, 1e-9)
    return rounded + 1.0 / (1.0 + np.exp(-np.clip(1.702 * deviations, -40.0, 40.0)))
