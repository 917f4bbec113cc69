"""Every candidate deployment in arrays: one row a set of counts and limits, scored on the steady state.

A replica's figures depend on its rate and on how many replicas share the arrivals, so each shape and phase is
scored once by its limits and once by its number of replicas; rows of one pool and of two pools combine these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.serving.plan import ReplicaGroup, ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.score import (
    CLOSE,
    DECODE,
    MIXED,
    PREFILL,
    ROLES,
    ReplicaCases,
    best_of_group,
    largest_rate,
    ttft_quantile,
)
from planner.serving.shapes import ReplicaShape

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NEVER = 1e9
"""Seconds that represent an infinite wait."""
LEAST_RATE = 1e-6
BUSY_LINK = 0.9
"""Highest share of time for which a decode replica receives KV: it waits for the link little."""
ABOVE = 1.02
"""Highest rate tried at a count of replicas, over that at the most replicas: fewer replicas wait longer."""
MOST_COUNTS = 128
"""Replicas of one shape up to which every count is tried beside every count of the other pool."""


def _series(most: int) -> Ints:
    """Small counts and a geometric series up to the most."""
    return np.unique(np.geomspace(1, most, most.bit_length() + 1).round().astype(np.int64))


@dataclass(frozen=True, eq=False)
class Phase:
    """One shape in one role: its best limits, and its figures by the number of replicas.

    Arrays have shape (replicas,), from one replica up.
    """

    shape: ReplicaShape
    role: str
    budget: int
    sequences: int
    """The best limits of a step."""
    rate: Array
    """Largest rate of a replica within the targets, requests a second."""
    ttft: Array
    tpot: Array
    decode: Array
    """From the first to the last token; of a prefill replica, until the KV arrived."""
    watts: Array
    tried: int
    """Pairs of limits that were compared."""
    batch: float = field(kw_only=True)
    """Largest mean number of decoding sequences of a rank at a rate within the targets."""
    bandwidth: float
    """Of the link to the other pool, B/s."""
    sending_s: float
    """Seconds of that link to send one prompt's KV."""

    def group(self, replicas: int) -> ReplicaGroup:
        """That many replicas."""
        return ReplicaGroup(self.shape, self.role, replicas, self.budget, self.sequences)


def phases(
    question: ServingQuestion,
    kept: Sequence[ReplicaShape],
    roles: Sequence[int],
    progress: Callable[[float], None] | None = None,
) -> list[Phase]:
    """Score every role of every shape; the figures are those at the asked rate, else at the largest."""
    cases = _with_links(ReplicaCases.of(question, kept, roles), kept)
    most = np.array([shape.most for shape in kept], np.int64)
    keys = np.stack([cases.role, cases.shape, -cases.bandwidth])
    _, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.ravel()
    cases = cases.shared_by(most[cases.shape])
    rates = largest_rate(cases, group=group)
    if progress:
        progress(0.75)
    best = own_limits(cases, rates, group, best_of_group(rates, group))
    chosen, tried = cases[best], np.bincount(group)

    # The largest rate at some counts, and linear between them.
    series = [_series(int(most[shape])) for shape in chosen.shape]
    owner = np.repeat(np.arange(len(best)), [len(counts) for counts in series])
    some = chosen[owner].shared_by(np.concatenate(series))
    at_series = largest_rate(some, most=ABOVE * rates[best][owner])
    counts = [np.arange(1, int(most[shape]) + 1) for shape in chosen.shape]
    limits = [
        np.interp(every, at, at_series[owner == number])
        for number, (every, at) in enumerate(zip(counts, series, strict=True))
    ]

    owner = np.repeat(np.arange(len(best)), [len(every) for every in counts])
    every, limit = np.concatenate(counts), np.concatenate(limits)
    load = limit if question.rate is None else question.rate / every
    if question.objective == "goodput":
        load = np.minimum(load, limit)
    state = chosen[owner].shared_by(every).state(np.maximum(load, LEAST_RATE))
    sent = sent_s(chosen[owner], np.maximum(load, LEAST_RATE), state.prefill_s)
    figures = (
        np.minimum(ttft_quantile(question, state), NEVER),
        np.where(state.stable, state.tpot_s, NEVER),
        np.where(state.stable, np.minimum(state.decode_s + sent, NEVER), NEVER),
        state.watts * every,
    )
    batch = np.where(load <= limit, state.batch, 0.0)
    ends = np.cumsum([len(part) for part in counts])[:-1]
    batches = [float(part.max()) for part in np.split(batch, ends)]
    ttft, tpot, decode, watts = (np.split(figure, ends) for figure in figures)
    return [
        Phase(
            shape=kept[int(chosen.shape[at])],
            role=ROLES[int(chosen.role[at])],
            budget=int(chosen.budget[at]),
            sequences=int(chosen.sequences[at]),
            rate=limits[at],
            ttft=ttft[at],
            tpot=tpot[at],
            decode=decode[at],
            watts=watts[at],
            tried=int(tried[at]),
            batch=batches[at],
            bandwidth=float(chosen.bandwidth[at]),
            sending_s=float(chosen.sending_s[at]),
        )
        for at in range(len(best))
    ]


def own_limits(cases: ReplicaCases, rates: Array, group: Ints, best: Ints) -> Ints:
    """The engine's own limits in place of the best ones of a group where they carry as much: both, or one.

    The limits of a case are at most the engine's own, so those are the largest of its group. A case that left
    the search early has a rate below its largest: it is tried at the best one's.

    Args:
        cases: cases of all groups.
        rates: rates found, shape (cases,); raised where a group's own limits take over.
        group: group of each case.
        best: number of the best case of each group.
    """
    wanted = rates[best] * (1.0 - 2.0 * CLOSE)
    budget, sequences = cases.budget[best][group], cases.sequences[best][group]
    every = np.ones(len(cases), bool)
    carries = rates[best] > 0
    owns, tried = [], []
    for among in (every, cases.budget == budget, cases.sequences == sequences):
        order = np.flatnonzero(among)
        order = order[np.lexsort((cases.sequences[order], cases.budget[order], group[order]))]
        owns.append(order[np.append(np.flatnonzero(np.diff(group[order])), len(order) - 1)])
        tried.append(carries & (owns[-1] != best))
    # One call for the three of all groups: it costs little more than one for a few.
    index = np.concatenate([own[some] for own, some in zip(owns, tried, strict=True)])
    carried = np.zeros((len(owns), len(best)), bool)
    carried[np.stack(tried)] = cases[index].meets(np.concatenate([wanted[some] for some in tried]))
    limits, left = best.copy(), carries
    for own, good in zip(owns, carried, strict=True):
        taken = left & good
        rates[own[taken]] = np.maximum(rates[own[taken]], wanted[taken])
        limits, left = np.where(taken, own, limits), left & ~taken
    return limits


def sent_s(cases: ReplicaCases, rate: Array, prefill_s: Array) -> Array:
    """Seconds from the end of a prompt to the arrival of its KV at a decode replica; 0 for other roles."""
    return np.where(cases.role == PREFILL, cases.transfer_s(rate, prefill_s), 0.0)


def _with_links(cases: ReplicaCases, kept: Sequence[ReplicaShape]) -> ReplicaCases:
    """The cases, with prefill replicas repeated for each narrower link to replicas of another type."""
    cases_by_link = [np.arange(len(cases))]
    widths = [cases.bandwidth]
    for index, shape in enumerate(kept):
        own = np.flatnonzero((cases.shape == index) & (cases.role == PREFILL))
        others = {other.nic_bandwidth for other in kept if other.offer.name != shape.offer.name}
        for width in sorted(other for other in others if other < shape.nic_bandwidth) if len(own) else ():
            cases_by_link.append(own)
            widths.append(np.full(len(own), width))
    if len(cases_by_link) == 1:
        return cases
    return replace(cases[np.concatenate(cases_by_link)], bandwidth=np.concatenate(widths))


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
    usd_per_hour: Array
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
        """Requests a second at which the figures hold: those asked for; for goodput, those carried."""
        wanted = self.goodput if self.question.rate is None else np.full(len(self), self.question.rate)
        return np.minimum(wanted, self.goodput) if self.question.objective == "goodput" else wanted

    @cached_property
    def latency(self) -> Array:
        """Seconds of a request from its arrival to its last token."""
        return self.ttft + self.decode_s

    @cached_property
    def meets(self) -> NDArray[np.bool_]:
        """Whether the targets hold at the load, for their share of requests; for goodput, at any load."""
        slo = self.question.workload.slo
        if self.question.objective == "goodput":
            return self.goodput > 0
        meets = (self.tpot < NEVER) & (self.load <= self.goodput * (1.0 + 4.0 * CLOSE))
        for figure, limit in (
            (self.ttft, slo.ttft),
            (self.tpot, slo.tpot),
            (self.latency, slo.e2e),
        ):
            if limit is not None:
                meets = meets & (figure <= limit)
        return meets

    @cached_property
    def miss(self) -> Array:
        """Distance of each row from its targets: the largest ratio of a latency to its target."""
        slo = self.question.workload.slo
        miss = np.zeros(len(self))
        for figure, limit in (
            (self.ttft, slo.ttft),
            (self.tpot, slo.tpot),
            (self.latency, slo.e2e),
        ):
            if limit is not None:
                miss = np.maximum(miss, figure / limit)
        return miss

    @cached_property
    def joules(self) -> Array:
        """Energy of the devices for one output token at the load, J."""
        return self.watts / np.maximum(self.load * self.question.output, 1e-9)

    @cached_property
    def value(self) -> Array:
        """The figure that ranks rows, ascending."""
        tokens = np.maximum(self.load * self.question.output, 1e-9)
        return {
            "goodput": lambda: -self.goodput,
            "cost": lambda: self.usd_per_hour / tokens,
            "energy": lambda: self.joules,
            "latency": lambda: self.latency,
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
    question: ServingQuestion,
    kept: Sequence[ReplicaShape],
    progress: Callable[[float], None] | None = None,
    phased: Callable[..., list[Phase]] = phases,
) -> Scores:
    """Score every count of every shape, and of every pair of shapes in two pools.

    Args:
        question: the question.
        kept: shapes that fit.
        progress: called with the finished share, from one half up.
        phased: scores shapes and roles, with the arguments of `phases`.
    """
    roles = (MIXED, PREFILL, DECODE) if question.split and question.output >= 2 else (MIXED,)
    scored = phased(question, kept, roles, progress)
    by_role = {role: [phase for phase in scored if phase.role == role] for role in ROLES}
    columns = [_together(question, index, phase) for index, phase in enumerate(by_role["mixed"])]
    for first, prefill in enumerate(by_role["prefill"]):
        columns += [
            _apart(question, first, prefill, second, decode)
            for second, decode in enumerate(by_role["decode"])
            if linked(prefill, decode)
        ]
    joined = [np.concatenate(parts, axis=-1) for parts in zip(*columns, strict=True)]
    if question.watts is not None:
        within = joined[-1] <= question.watts
        joined = [part[..., within] for part in joined]
    return Scores(question, by_role["mixed"], by_role["prefill"], by_role["decode"], *joined)


def linked(prefill: Phase, decode: Phase) -> bool:
    """Whether the prefill replicas were scored with their link to these decode replicas."""
    if prefill.shape.offer.name == decode.shape.offer.name:
        return prefill.bandwidth == prefill.shape.nic_bandwidth
    return prefill.bandwidth == min(prefill.shape.nic_bandwidth, decode.shape.nic_bandwidth)


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
    counts = _counts(question, min(len(phase.ttft), question.devices // phase.shape.devices))
    at = counts - 1
    none = np.zeros_like(counts)
    return (
        np.full_like(counts, index),
        none - 1,
        np.stack([counts, none]),
        counts * phase.shape.devices,
        counts * phase.shape.devices * phase.shape.offer.usd_per_hour,
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
    if prefill.shape.offer.name == decode.shape.offer.name:
        fits &= devices <= prefill.shape.offer.devices
    before, after, devices = before[fits], after[fits], devices[fits]
    goodput = np.minimum(before * prefill.rate[before - 1], after * decode.rate[after - 1])
    goodput = np.minimum(goodput, BUSY_LINK * after / prefill.sending_s)
    usd = before * prefill.shape.devices * prefill.shape.offer.usd_per_hour
    usd = usd + after * decode.shape.devices * decode.shape.offer.usd_per_hour
    load = goodput if question.rate is None else np.full(len(goodput), question.rate)
    if question.objective == "goodput":
        load = np.minimum(load, goodput)
    slow = load * prefill.sending_s > BUSY_LINK * after
    sent = prefill.decode[before - 1]
    return (
        np.full_like(before, first),
        np.full_like(before, second),
        np.stack([before, after]),
        devices,
        usd,
        goodput,
        np.where(slow, NEVER, prefill.ttft[before - 1]),
        decode.tpot[after - 1] + sent / max(question.output - 1.0, 1.0),
        decode.decode[after - 1] + sent,
        prefill.watts[before - 1] + decode.watts[after - 1],
    )
