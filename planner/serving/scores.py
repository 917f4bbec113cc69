"""Every candidate deployment in arrays: one row a set of counts and limits, scored on the steady state.

A replica's figures depend on its rate and on how many replicas share the arrivals, so each shape and phase is
scored once by its limits and once by its number of replicas; rows of one pool and of two pools combine these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.serving.plan import ReplicaGroup, ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.score import Limited, largest_rate, phase_state, transfer_s, ttft_quantile
from planner.serving.shapes import ReplicaShape

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NEVER = 1e9
"""Seconds that stand for a wait without end."""
LEAST_RATE = 1e-6
MOST_COUNTS = 128
"""Replicas of one shape up to which every count is tried beside every count of the other pool."""


def _by_count(counts: Ints, rate: Callable[[Ints], Array]) -> Array:
    """A figure by the number of replicas, found at small counts and a geometric series and linear between."""
    series = np.geomspace(1, counts[-1], int(counts[-1]).bit_length() + 1).round().astype(np.int64)
    some = np.unique(series)
    return np.interp(counts, some, rate(some))


@dataclass(frozen=True, eq=False)
class Phase:
    """One shape in one role: its best limits, and its figures by the number of replicas.

    Arrays have shape (replicas,), from one replica up.
    """

    shape: ReplicaShape
    role: str
    limits: Limited
    rate: Array
    """Largest rate of a replica within the targets, requests a second."""
    ttft: Array
    tpot: Array
    decode: Array
    watts: Array
    tried: int
    """Limits that were compared."""

    @classmethod
    def of(cls, question: ServingQuestion, shape: ReplicaShape, role: str) -> Phase:
        """Score a shape; the figures are those at the asked rate, else at the largest."""
        limits = Limited.of(question, shape)
        counts = np.arange(1, question.devices // shape.devices + 1)
        best = int(np.argmax(largest_rate(question, shape, limits.shared_by(counts[-1]), role)))
        chosen = Limited(limits.budget[best : best + 1], limits.sequences[best : best + 1])
        rates = _by_count(counts, lambda some: largest_rate(question, shape, chosen.shared_by(some), role))
        load = rates if question.rate is None else question.rate / counts
        state = phase_state(question, shape, chosen.shared_by(counts), np.maximum(load, LEAST_RATE), role)
        return cls(
            shape=shape,
            role=role,
            limits=chosen,
            rate=rates,
            ttft=np.minimum(ttft_quantile(question, state), NEVER),
            tpot=np.where(state.stable, state.tpot_s, NEVER),
            decode=np.where(state.stable, state.decode_s, NEVER),
            watts=state.watts * counts,
            tried=len(limits),
        )

    def group(self, replicas: int) -> ReplicaGroup:
        """That many replicas."""
        budget, sequences = int(self.limits.budget[0]), int(self.limits.sequences[0])
        return ReplicaGroup(self.shape, self.role, replicas, budget, sequences)


@dataclass(frozen=True, eq=False)
class Scores:
    """All rows; arrays of shape (rows,).

    ``first`` and ``second`` index ``mixed`` (with -1 for ``second``) or ``prefill`` and ``decode``;
    ``replicas`` has shape (2, rows).
    """

    question: ServingQuestion
    mixed: Sequence[Phase]
    prefill: Sequence[Phase]
    decode: Sequence[Phase]
    first: Ints
    second: Ints
    replicas: Ints
    devices: Ints
    goodput: Array
    ttft: Array
    tpot: Array
    decode_s: Array
    watts: Array

    def __len__(self) -> int:
        return len(self.first)

    @property
    def stands_for(self) -> int:
        """Candidates behind the rows: each with every limit of its engine."""
        tried = np.array([phase.tried for phase in self.mixed])
        together = self.second < 0
        return int(tried[self.first[together]].sum()) + int(np.count_nonzero(~together))

    @property
    def groups(self) -> Ints:
        """Pools of each row."""
        return 1 + (self.second >= 0)

    @cached_property
    def load(self) -> Array:
        """Requests a second at which the figures hold."""
        return self.goodput if self.question.rate is None else np.full(len(self), self.question.rate)

    @cached_property
    def usd_per_hour(self) -> Array:
        """List price of the devices in use."""
        return self.devices.astype(np.float64) * self.question.cluster.device.price_per_hour_usd

    @cached_property
    def meets(self) -> NDArray[np.bool_]:
        """Whether the targets hold at the load; for goodput, at any load."""
        slo = self.question.workload.slo
        if self.question.objective == "goodput":
            return self.goodput > 0
        held = self.tpot < NEVER
        for figure, limit in (
            (self.ttft, slo.ttft),
            (self.tpot, slo.tpot),
            (self.ttft + self.decode_s, slo.e2e),
        ):
            if limit is not None:
                held = held & (figure <= limit)
        return held

    @cached_property
    def miss(self) -> Array:
        """How far each row is from its targets: the largest latency over its target."""
        slo = self.question.workload.slo
        found = np.zeros(len(self))
        for figure, limit in (
            (self.ttft, slo.ttft),
            (self.tpot, slo.tpot),
            (self.ttft + self.decode_s, slo.e2e),
        ):
            if limit is not None:
                found = np.maximum(found, figure / limit)
        return found

    @cached_property
    def value(self) -> Array:
        """What ranks rows, the least first."""
        tokens = np.maximum(self.load * self.question.output, 1e-9)
        return {
            "goodput": lambda: -self.goodput,
            "cost": lambda: self.usd_per_hour / tokens,
            "energy": lambda: self.watts / tokens,
            "latency": lambda: self.ttft + self.decode_s,
        }[self.question.objective]()

    def layout(self, index: int) -> tuple[int, ...]:
        """The shapes of a row: rows that differ in counts alone share it."""
        counts = tuple(self.replicas[:, index]) if self.question.objective == "latency" else ()
        return int(self.first[index]), int(self.second[index]), *map(int, counts)

    def plan(self, index: int) -> ServingPlan:
        """One row as a plan."""
        before, after = (int(count) for count in self.replicas[:, index])
        first, second = int(self.first[index]), int(self.second[index])
        if second < 0:
            groups: tuple[ReplicaGroup, ...] = (self.mixed[first].group(before),)
        else:
            groups = self.prefill[first].group(before), self.decode[second].group(after)
        load = float(self.load[index])
        return ServingPlan(
            groups=groups,
            goodput=float(self.goodput[index]),
            load=load,
            ttft_s=float(self.ttft[index]),
            tpot_s=float(self.tpot[index]),
            e2e_s=float(self.ttft[index] + self.decode_s[index]),
            output_tokens_s=max(load * self.question.output, 1e-9),
            watts=float(self.watts[index]),
            usd_per_hour=float(self.usd_per_hour[index]),
            meets=bool(self.meets[index]),
        )


def scores(
    question: ServingQuestion, kept: Sequence[ReplicaShape], progress: Callable[[float], None] | None = None
) -> Scores:
    """Score every count of every shape, and of every pair of shapes in two pools.

    Args:
        question: what is asked.
        kept: shapes that fit.
        progress: called with the finished share, from one half up.
    """
    roles = ("mixed", "prefill", "decode") if question.split and question.output >= 2 else ("mixed",)
    phases: dict[str, list[Phase]] = {"mixed": [], "prefill": [], "decode": []}
    for role in roles:
        for shape in kept:
            phases[role].append(Phase.of(question, shape, role))
            if progress:
                done = sum(map(len, phases.values()))
                progress(0.5 + 0.5 * done / (len(kept) * len(roles)))
    columns = [_together(question, index, phase) for index, phase in enumerate(phases["mixed"])]
    for first, prefill in enumerate(phases["prefill"]):
        columns += [
            _apart(question, first, prefill, second, decode) for second, decode in enumerate(phases["decode"])
        ]
    joined = [np.concatenate(parts, axis=-1) for parts in zip(*columns, strict=True)]
    return Scores(question, phases["mixed"], phases["prefill"], phases["decode"], *joined)


def _counts(question: ServingQuestion, most: int) -> Ints:
    """Numbers of replicas that the constraints leave."""
    counts = np.arange(1, most + 1)
    if "replicas" in question.fix:
        counts = counts[counts == question.fix["replicas"]]
    return counts[counts <= question.limit.get("replicas", most)]


def _thinned(counts: Ints) -> Ints:
    """All counts up to ``MOST_COUNTS``; of more, small ones and a geometric series: pairs stay few."""
    if len(counts) <= MOST_COUNTS:
        return counts
    series = np.geomspace(1, len(counts), MOST_COUNTS).round().astype(np.int64) - 1
    return counts[np.union1d(np.arange(MOST_COUNTS // 4), series)]


def _together(question: ServingQuestion, index: int, phase: Phase) -> tuple[np.ndarray, ...]:
    """Rows of one mixed pool."""
    counts = _counts(question, len(phase.ttft))
    at = counts - 1
    none = np.zeros_like(counts)
    return (
        np.full_like(counts, index),
        none - 1,
        np.stack([counts, none]),
        counts * phase.shape.devices,
        counts * phase.rate[at],
        phase.ttft[at],
        phase.tpot[at],
        phase.decode[at],
        phase.watts[at],
    )


def _apart(
    question: ServingQuestion, first: int, prefill: Phase, second: int, decode: Phase
) -> tuple[np.ndarray, ...]:
    """Rows of a prefill and a decode pool."""
    counts = (_thinned(_counts(question, len(phase.ttft))) for phase in (prefill, decode))
    grids = np.meshgrid(*counts, indexing="ij")
    before, after = (grid.ravel() for grid in grids)
    devices = before * prefill.shape.devices + after * decode.shape.devices
    fits = devices <= question.devices
    before, after, devices = before[fits], after[fits], devices[fits]
    goodput = np.minimum(before * prefill.rate[before - 1], after * decode.rate[after - 1])
    ttft = prefill.ttft[before - 1] + transfer_s(question, prefill.shape) + decode.tpot[after - 1]
    return (
        np.full_like(before, first),
        np.full_like(before, second),
        np.stack([before, after]),
        devices,
        goodput,
        np.minimum(ttft, NEVER),
        decode.tpot[after - 1],
        decode.decode[after - 1],
        prefill.watts[before - 1] + decode.watts[after - 1],
    )
