"""Largest rates within the targets, latencies and power of replicas, in arrays over shapes, roles and limits.

Steady states know means. The targets hold for a share of the requests, so waits are taken as exponential: the
quantile of TTFT is its mean plus (ln(1 / (1 - share)) - 1) times the mean wait and half a step. Where prompts
vary, the prefill of a prompt as long as that share asks for is added, as deviations of independent waits are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.errors import InputError
from planner.serving.drafts import DraftedSteps, Steps
from planner.serving.plan import ReplicaGroup
from planner.serving.question import ServingQuestion
from planner.serving.shapes import ReplicaShape
from planner.serving.shared_pricing import shared_pricing
from simulator.serving.encoders import EncodingArrays, PromptArrays
from simulator.serving.fleet.transfer import arrival_s
from simulator.serving.kv_states import AttentionApart
from simulator.serving.overlaps import Overlaps, OverlapSteps, make_overlap
from simulator.serving.steady.rate_curve import RateCurve, rate_curve
from simulator.serving.steady.steady import Limits, Load, Steady, steady_state
from simulator.serving.steady.steady_cases import mixes
from simulator.serving.steps.capped import step_arrays
from simulator.serving.steps.case_mechanism import ArrayMechanism
from simulator.serving.steps.step_arrays import StepArrays

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

ROLES = ("mixed", "prefill", "decode")
MIXED, PREFILL, DECODE = range(len(ROLES))
CLOSE = 5e-4
"""Precision of the largest rate, relative."""
HALVES = 12
"""Halvings of the part of a curve in which the largest rate lies."""
LEAST_RATE = 1e-6
SAME_RUNG = 1e-6
"""Part of a step of the ladder, or of a rate, that last bits may move a rate by."""
MOST_CACHED = 0.5
"""Share of KV that idle prefixes keep beside running sequences (assumed)."""
MOST_CASES = 512
"""Curves drawn together: their arrays stay in the cache."""
BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
SEQUENCES = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, eq=False)
class ReplicaCases:
    """Replicas with a role and engine limits; arrays of shape (cases,).

    Attributes:
        question: the question.
        shapes: kinds of replicas.
        shape: kind of each case, an index of ``shapes``.
        role: an index of ``ROLES``.
        budget, sequences: limits of a step.
        replicas: number of replicas among which a router balances arrivals.
        prompt, output: mean tokens of a request.
        bandwidth: of the link between a prefill and a decode replica, B/s.
    """

    question: ServingQuestion
    shapes: Sequence[ReplicaShape]
    shape: Ints
    role: Ints
    budget: Array
    sequences: Array
    replicas: Array
    prompt: Array
    output: Array
    bandwidth: Array

    @classmethod
    def of(
        cls, question: ServingQuestion, shapes: Sequence[ReplicaShape], roles: Sequence[int] = (MIXED,)
    ) -> ReplicaCases:
        """Every role of every shape with every pair of limits up to the engine's defaults, unless fixed.

        A decode replica has one budget for each number of sequences, the engine's own; a prefill replica has
        no two numbers of sequences beyond the prompts of a step.

        Raises:
            InputError: more sequences are fixed than a step has tokens.
        """
        limits = [_limits(question, shape) for shape in shapes]
        parts = [
            (np.full(len(some), index), np.full(len(some), role), budget[some], sequences[some])
            for role in roles
            for index, (budget, sequences) in enumerate(limits)
            for some in [_differing(question, shapes[index], role, budget, sequences)]
            if _plays(question, shapes[index], role)
        ]
        shape, role, budget, sequences = (np.concatenate(part) for part in zip(*parts, strict=True))
        every = np.ones(len(shape))
        output, prompt = question.output * every, question.prompt * every
        link_bandwidths = np.array([kind.link_bandwidth(question.devices) for kind in shapes])[shape]
        return cls(question, shapes, shape, role, budget, sequences, every, prompt, output, link_bandwidths)

    @classmethod
    def with_limits(
        cls,
        question: ServingQuestion,
        shapes: Sequence[ReplicaShape],
        budget: Sequence[float],
        sequences: Sequence[float],
    ) -> ReplicaCases:
        """One mixed replica of every shape, with its own limits of a step."""
        every = np.ones(len(shapes))
        number = np.arange(len(shapes))
        limits = np.array(budget, float), np.array(sequences, float)
        link_bandwidths = np.array([kind.link_bandwidth(question.devices) for kind in shapes])
        lengths = question.prompt * every, question.output * every
        return cls(
            question, shapes, number, np.full(len(shapes), MIXED), *limits, every, *lengths, link_bandwidths
        )

    @classmethod
    def of_group(cls, question: ServingQuestion, group: ReplicaGroup, count: int = 1) -> ReplicaCases:
        """``count`` times a replica of a deployment's group, with its role and limits."""
        replica = cls.with_limits(question, [group.shape], [group.budget], [group.sequences])
        replica = replace(replica.shared_by(group.replicas), role=np.array([ROLES.index(group.role)]))
        replica.curve  # noqa: B018 (drawn once for all)
        return replica[np.zeros(count, np.int64)]

    @cached_property
    def steps(self) -> DraftedSteps:
        """Step times of all shapes."""
        drafts = [shape.pool.speculation for shape in self.shapes]
        tables = _joined(self.question, self.shapes)
        return DraftedSteps(tables, drafts, self.question.model.layers)

    @cached_property
    def kv_tokens(self) -> Array:
        """KV tokens of one attention rank."""
        return np.array([shape.kv_room for shape in self.shapes], float)[self.shape]

    @cached_property
    def reused(self) -> Array:
        """Prompt tokens found in the prefix cache of a rank.

        System prompts that fill more than ``MOST_CACHED`` of its KV are held in part: each is as likely as
        any other to be asked for. What a trace repeats it repeats soon: all of it is found.
        """
        repeated = self.question.repeated
        if not repeated:
            return np.zeros(len(self))
        caching = np.array([shape.options.prefix_caching for shape in self.shapes], float)[self.shape]
        fits = 1.0
        if self.question.sample.common:
            fits = np.minimum(MOST_CACHED * self.kv_tokens / max(self.question.sample.distinct, 1.0), 1.0)
        return repeated * caching * fits

    @cached_property
    def sending_s(self) -> Array:
        """Seconds of the link to send one prompt's KV to a decode replica."""
        token = np.array([shape.kv_token_bytes for shape in self.shapes])[self.shape]
        return self.prompt * token / self.bandwidth

    def transfer_s(self, rate: Array, prefill_s: Array) -> Array:
        """Seconds from the end of a prompt to the arrival of its KV; infinite where the link is too slow.

        Layers are sent while later ones are computed. The link sends one prompt at a time: waits are those of
        M/D/1.

        Args:
            rate: requests a second of one replica, shape (cases,).
            prefill_s: computation of a prompt, s.
        """
        sending, busy = self.sending_s, rate * self.sending_s
        wait = sending * busy / (2.0 * np.maximum(1.0 - busy, 1e-9))
        arrival = arrival_s(sending, prefill_s, self.question.model.layers, wait)
        arrival += np.array([shape.options.handoff_s for shape in self.shapes])[self.shape]
        return np.where(busy < 1.0, arrival, np.inf)

    def __len__(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Ints | slice) -> ReplicaCases:
        """Some of the cases, by their numbers; numbers may repeat."""
        names = ("shape", "role", "budget", "sequences", "replicas", "prompt", "output", "bandwidth")
        some = replace(self, **{name: getattr(self, name)[index] for name in names})
        some.__dict__["steps"] = self.steps
        if "curve" in self.__dict__:
            some.__dict__["curve"] = self.curve[index]
        return some

    def shared_by(self, replicas: ArrayLike) -> ReplicaCases:
        """The same cases with replicas that share arrivals."""
        some = replace(self, replicas=np.broadcast_to(np.asarray(replicas, float), self.shape.shape))
        some.__dict__["steps"] = self.steps
        return some

    def over(self, bandwidth: Array) -> ReplicaCases:
        """The same cases with other links between the pools; steps and states stay."""
        some = replace(self, bandwidth=bandwidth)
        some.__dict__.update(steps=self.steps, curve=self.curve)
        return some

    @cached_property
    def curve(self) -> RateCurve:
        """States of one replica of each case by its rate."""
        starts = range(0, max(len(self), 1), MOST_CASES)
        return RateCurve.joined([self[start : start + MOST_CASES]._curves() for start in starts])

    def _curves(self) -> RateCurve:
        """Curves of all cases, those that are drawn already from `shared_pricing`."""
        pricing, key = shared_pricing(self.question), self._curve_key()
        if key in pricing.curves:
            return pricing.curves[key][1]
        curve = self._evaluate(
            lambda index, steps: rate_curve(steps, self[index]._load(), self[index]._bounds)
        )
        return pricing.keep(key, [shape.table for shape in self.shapes], curve) if key else curve

    def _curve_key(self) -> tuple[Any, ...]:
        """What curves depend on; empty of replicas that are not `ReplicaShape.tabled`."""
        if not all(shape.tabled for shape in self.shapes):
            return ()
        parts = (part for shape in self.shapes for part in (shape.pool.speculation, shape.pool.overlap))
        figures = self.shape, self.role, *vars(self._load()).values(), *vars(self._bounds).values()
        return (
            *(id(shape.table) for shape in self.shapes),
            *(part and part.model_dump_json() for part in parts),
            *(np.asarray(figure).tobytes() for figure in figures),
        )

    def _load(self) -> Load:
        """Requests of each case: prefill writes one token, decode receives the prompt's KV."""
        output = np.where(self.role == PREFILL, 1.0, self.output)
        cached = np.where(self.role == DECODE, self.prompt - 1.0, self.reused)
        varied = np.where(self.reused > 0.0, self.question.new_variation, self.question.prompt_variation)
        return Load(
            self.prompt,
            output,
            cached=cached,
            variation=self.question.output_variation,
            prompt_variation=np.where(self.role == DECODE, 0.0, varied),
            replicas=self.replicas,
        )

    @property
    def _bounds(self) -> Limits:
        # A decode replica's sequences come with their KV: the engine lets them join the running ones at once.
        joins = True if bool(np.all(self.role == DECODE)) else None
        return Limits(self.budget, self.sequences, self.kv_tokens * self._beside_prefixes, joins)

    @property
    def _beside_prefixes(self) -> Array:
        """Factor on KV tokens: sequences of one system prompt share its blocks."""
        question = self.question
        if not (question.repeated and question.sample.common):
            return np.ones(len(self))
        full_length = self.prompt + self.output
        rest = np.maximum(1.0 - question.sample.distinct / self.kv_tokens, 0.0)
        return np.where(self.reused > 0.0, rest * full_length / (full_length - self.reused), 1.0)

    def state(self, rate: Array) -> Steady:
        """The steady state of one replica of each case.

        Args:
            rate: requests a second of one replica, shape (..., cases).
        """
        return self.curve.at(rate)

    def closed_state(self, clients: Array) -> Steady:
        """The steady state of one replica of each case under its own clients.

        Args:
            clients: requests in flight on one replica, shape (cases,).
        """

        def load(index: Ints | slice) -> Load:
            return replace(self[index]._load(), concurrency=clients[index])

        return self._evaluate(lambda index, steps: steady_state(steps, load(index), self[index]._bounds))

    def _evaluate(self, call: Callable[[Ints | slice, Steps], Any]) -> Any:
        """Arrays, or a steady state, of all cases; decode replicas apart where others stop for prompts."""
        apart = None if mixes(self.steps.steps.engine) else self.role == DECODE
        return self.steps.evaluate(self.shape, call, apart)

    def meets(self, rate: Array) -> NDArray[np.bool_]:
        """Whether a replica holds its part of the targets at a rate; see `state`."""
        slo, state = self.question.workload.slo, self.state(rate)
        first, token = ttft_quantile(self.question, state), tpot_quantile(self.question, state)
        mixed, prefill = self.role == MIXED, self.role == PREFILL
        # The first token comes from the prefill pool; the others wait for the KV.
        sent = np.zeros(len(self))
        if prefill.any():
            sent = np.where(prefill, self.transfer_s(rate, state.prefill_s), 0.0)
        meets = state.stable & (sent < np.inf)
        if slo.ttft is not None:
            meets &= (self.role == DECODE) | (first <= slo.ttft)
        elif slo.e2e is not None:
            meets &= ~prefill | (first + sent <= slo.e2e)
        if slo.tpot is not None:
            meets &= np.where(prefill, sent / max(self.question.output - 1.0, 1.0), token) <= slo.tpot
        if slo.e2e is not None:
            meets &= prefill | (np.where(mixed, first, 0.0) + state.decode_s <= slo.e2e)
        return meets


def _plays(question: ServingQuestion, shape: ReplicaShape, role: int) -> bool:
    """Whether a replica is tried in a role."""
    if shape.attention is not None:
        return role == DECODE
    if question.holds_attention:
        return role == PREFILL and shape.pool.speculation is None
    return role != PREFILL or shape.pool.speculation is None


def _joined(question: ServingQuestion, shapes: Sequence[ReplicaShape]) -> StepArrays:
    """Step times of shapes, with the overlap inside their steps, attention elsewhere and pictures."""
    tables = [shape.table for shape in shapes]
    more: list[ArrayMechanism] = [*_encoding(question, shapes)]
    encoders = [shape.encoder for shape in shapes if shape.encoder is not None]
    if len(encoders) == len(shapes):
        more.append(PromptArrays(encoders))
    sides = [shape.attention and (shape.attention.replicas, shape.attention.batches) for shape in shapes]
    if any(sides):
        more.append(AttentionApart(tables, sides))
    if all(shape.pool.overlap is None for shape in shapes):
        return step_arrays(tables, *more)
    steps: dict[int, OverlapSteps] = {}
    overlapped = []
    for shape in shapes:
        overlap, key = shape.pool.overlap, id(shape.table)
        if overlap is not None and key not in steps:
            steps[key] = OverlapSteps(shape.table, make_overlap(overlap, "overlap"))
        overlapped.append(None if overlap is None else steps[key])
    return step_arrays(tables, Overlaps(overlapped), *more)


def _encoding(question: ServingQuestion, shapes: Sequence[ReplicaShape]) -> list[EncodingArrays]:
    """The towers of shapes, where requests have images."""
    towers = [shape.tower for shape in shapes if shape.tower is not None]
    if question.pictures is None or len(towers) < len(shapes):
        return []
    return [EncodingArrays(towers, question.pictures, question.prompt - question.repeated)]


def _limits(question: ServingQuestion, shape: ReplicaShape) -> tuple[Array, Array]:
    """Budgets and sequence limits to try on a shape."""
    budgets = _up_to(question, "token_budget", BUDGETS, shape.options.token_budget)
    most_sequences = min(shape.options.max_sequences, int(budgets.max()))
    sequences = _up_to(question, "max_sequences", SEQUENCES, most_sequences)
    budget, sequence = np.meshgrid(budgets, sequences, indexing="ij")
    queries = 1 if shape.pool.speculation is None else shape.pool.speculation.queries
    keep = budget.ravel() >= sequence.ravel() * queries
    if not keep.any():
        raise InputError(
            f"max_sequences {int(sequences.min()):,} is above the token budget of {int(budgets.max()):,}",
            "--fix",
        )
    return budget.ravel()[keep], sequence.ravel()[keep]


def _differing(
    question: ServingQuestion, shape: ReplicaShape, role: int, budget: Array, sequences: Array
) -> Ints:
    """Numbers of the pairs of limits that differ to a replica in a role, and of the engine's own."""
    if role == MIXED:
        return np.arange(len(budget))
    if role == DECODE:
        # Prompts fill no budget of its steps.
        largest = np.lexsort((-budget, sequences))
        return np.sort(largest[np.unique(sequences[largest], return_index=True)[1]])
    # No step holds more prompts than the first number of sequences at or above these.
    in_step = shape.pool.pipeline * budget / max(question.prompt - question.repeated, 1.0)
    tried = np.unique(sequences)
    enough = tried[np.minimum(np.searchsorted(tried, in_step), len(tried) - 1)]
    return np.flatnonzero((sequences <= enough) | (sequences == tried[-1]))


def _up_to(question: ServingQuestion, name: str, values: tuple[int, ...], default: int) -> Array:
    if name in question.fix:
        return np.array([question.fix[name]], float)
    largest = min(default, question.limit.get(name, default))
    return np.array(sorted({value for value in values if value <= largest} | {largest}), float)


def ttft_quantile(question: ServingQuestion, state: Steady) -> Array:
    """TTFT of the share of requests that must meet it, s."""
    with np.errstate(invalid="ignore"):
        waits = np.maximum((question.tail - 1.0) * state.queue_s + 0.5 * state.step_s, 0.0)
    longer = question.long_prompt * state.prefill_s
    return np.where(state.stable, state.ttft_s + np.hypot(waits, longer), np.inf)


def tpot_quantile(question: ServingQuestion, state: Steady) -> Array:
    """TPOT of the share of requests that must meet it, s, as a normal distribution."""
    return state.tpot_s + question.deviations * state.tpot_spread_s


def largest_rate(cases: ReplicaCases) -> Array:
    """Requests a second of one replica within the targets, by case; 0 where even few miss.

    Latencies of a curve do not fall as its rate rises, so both its points and the part between two of them
    are halved until the largest rate is known to `CLOSE`.
    """
    curve, every = cases.curve, np.arange(len(cases))
    below, above = np.full(len(cases), -1), np.full(len(cases), len(curve.rate))
    for _ in range(len(curve.rate).bit_length()):
        middle = np.maximum((below + above) // 2, 0)
        meets = cases.meets(curve.rate[middle, every] * curve.lanes)
        below, above = np.where(meets, middle, below), np.where(meets, above, middle)
    last = len(curve.rate) - 1
    low = np.where(below >= 0, curve.rate[below, every] * curve.lanes, 0.0)
    high = np.where(below >= 0, curve.rate[np.minimum(above, last), every] * curve.lanes, 0.0)
    for _ in range(HALVES):
        middle = 0.5 * (low + high)
        meets = cases.meets(middle)
        low, high = np.where(meets, middle, low), np.where(meets, high, middle)
    return on_ladder(low)


def on_ladder(rates: Array) -> Array:
    """Rates rounded down to a ladder, steps of ``CLOSE`` apart; 0 stays 0.

    Last bits of a case depend on those beside it: rungs do not, so a plan alone carries what it carries
    among others.
    """
    step = np.log1p(CLOSE)
    rungs = np.floor(np.log(np.maximum(rates, LEAST_RATE)) / step + SAME_RUNG)
    return np.where(rates > LEAST_RATE, np.exp(rungs * step), 0.0)


def best_of_group(rates: Array, group: Ints) -> Ints:
    """Number of the best case of each group: of equal ones, within the precision, the first."""
    best = np.zeros(int(group.max()) + 1)
    np.maximum.at(best, group, rates)
    close = np.flatnonzero(rates >= best[group] * (1.0 - 2.0 * CLOSE))
    return close[np.unique(group[close], return_index=True)[1]]
