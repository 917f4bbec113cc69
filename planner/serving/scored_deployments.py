"""Every candidate deployment in arrays: one row a set of counts and limits, scored on the steady state.

Rows of one pool and of two pools combine the figures of phases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import DECODE, MIXED, PREFILL, ROLES, SAME_RUNG
from planner.serving.roles import NEVER, Phase, phases
from planner.serving.shapes import ReplicaShape

Array = NDArray[np.float64]
Ints = NDArray[np.signedinteger]

BUSY_LINK = 0.9
"""Highest share of time for which a decode replica receives KV: it waits for the link little."""
BLOCKED_LINK = 0.53
"""The same where several replicas send to several, each one prompt at a time: a prompt whose target is busy
holds up those behind it, so at most 0.586 of the links are in use (Karol et al., IEEE Transactions on
Communications 35, 1987)."""
MOST_COUNTS = 128
"""Replicas of one shape up to which every count is tried beside every count of the other pool."""


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
        rate = self.goodput if self.question.rate is None else np.full(len(self), self.question.rate)
        return np.minimum(rate, self.goodput) if self.question.objective == "goodput" else rate

    @cached_property
    def latency(self) -> Array:
        """Seconds of a request from its arrival to its last token."""
        return self.ttft + self.decode_s

    @cached_property
    def meets(self) -> NDArray[np.bool_]:
        """Whether the targets hold at the load, for their share of requests; for goodput, at any load."""
        if self.question.objective == "goodput":
            return self.goodput > 0
        meets = (self.tpot < NEVER) & (self.load <= self.goodput * (1.0 + SAME_RUNG))
        for figure, limit in self._targeted:
            meets = meets & (figure <= limit)
        return meets

    @cached_property
    def miss(self) -> Array:
        """Distance of each row from its targets: the largest ratio of a latency to its target."""
        miss = np.zeros(len(self))
        for figure, limit in self._targeted:
            miss = np.maximum(miss, figure / limit)
        return miss

    @property
    def _targeted(self) -> list[tuple[Array, float]]:
        return targeted(self.question, self.ttft, self.tpot, self.decode_s)

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
        parts = [self.mixed[first]] if second < 0 else [self.prefill[first], self.decode[second]]
        counts = before, after
        groups = tuple(phase.group(count) for phase, count in zip(parts, counts, strict=False))
        load, goodput = float(self.load[index]), float(self.goodput[index])
        e2e_s = full_s = float(self.ttft[index] + self.decode_s[index])
        if load != goodput:
            full_s = sum(phase.latency(count, goodput) for phase, count in zip(parts, counts, strict=False))
        return ServingPlan(
            groups=groups,
            goodput=goodput,
            load=load,
            ttft_s=float(self.ttft[index]),
            tpot_s=float(self.tpot[index]),
            e2e_s=e2e_s,
            output_tokens_s=max(load * self.question.output, 1e-9),
            watts=float(self.watts[index]),
            usd_per_hour=float(self.usd_per_hour[index]),
            meets=bool(self.meets[index]),
            full_s=full_s,
        )


def scores(
    question: ServingQuestion,
    kept_shapes: Sequence[ReplicaShape],
    progress: Callable[[float], None] | None = None,
    phased: Callable[..., list[Phase]] = phases,
) -> Scores:
    """Score every count of every shape, and of every pair of shapes in two pools.

    Args:
        question: the question.
        kept_shapes: shapes that fit.
        progress: called with the finished share, from one half up.
        phased: scores shapes and roles, with the arguments of `phases`.
    """
    roles = (MIXED, PREFILL, DECODE) if question.splits else (MIXED,)
    scored_phases = phased(question, kept_shapes, roles, progress)
    by_role = {role: [phase for phase in scored_phases if phase.role == role] for role in ROLES}
    columns = [_together(question, index, phase) for index, phase in enumerate(by_role["mixed"])]
    prefilling, decoding = by_role["prefill"], by_role["decode"]
    if prefilling and decoding:
        pools = _DecodePools.of(question, decoding)
        columns += [_apart(question, first, phase, pools, decoding) for first, phase in enumerate(prefilling)]
    joined = [np.concatenate(parts, axis=-1) for parts in zip(*columns, strict=True)]
    return Scores(question, by_role["mixed"], prefilling, decoding, *joined)


def targeted(
    question: ServingQuestion, ttft: Array, tpot: Array, decode_s: Array
) -> list[tuple[Array, float]]:
    """Latencies of requests that have a target, each with it.

    Args:
        question: with the targets.
        ttft: seconds to the first token, of the share that must meet the target; shape (rows,).
        tpot: mean seconds of a further token.
        decode_s: mean seconds from the first token to the last.
    """
    slo = question.workload.slo
    limits = ((ttft, slo.ttft), (tpot, slo.tpot), (ttft + decode_s, slo.e2e))
    return [(figure, limit) for figure, limit in limits if limit is not None]


def linked(prefill: Phase, decoding: Sequence[Phase], devices: int) -> Ints:
    """Numbers of the decode replicas that the prefill replicas were scored with their link to."""
    widths = (prefill.shape.link_to(decode.shape, devices) for decode in decoding)
    return np.array([at for at, width in enumerate(widths) if width == prefill.bandwidth], np.int32)


def _counts(question: ServingQuestion, most_replicas: int) -> Ints:
    """Numbers of replicas that the constraints leave; in 32 bits, since questions have a million rows."""
    counts = np.arange(1, most_replicas + 1, dtype=np.int32)
    if "replicas" in question.fix:
        counts = counts[counts == question.fix["replicas"]]
    return counts[counts <= question.limit.get("replicas", most_replicas)]


def _thinned(counts: Ints) -> Ints:
    """All counts up to ``MOST_COUNTS``; of more, small ones and a geometric series: pairs stay few."""
    if len(counts) <= MOST_COUNTS:
        return counts
    series = np.geomspace(1, len(counts), MOST_COUNTS).round().astype(np.int64) - 1
    return counts[distinct(np.concatenate([np.arange(MOST_COUNTS // 4), series]))]


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


@dataclass(frozen=True, eq=False)
class _DecodePools:
    """Decode pools of every phase and count.

    Attributes:
        count: replicas, shape (rows,); rate, tpot, decode and watts as in `Phase`.
        start, length: first row and rows of each phase, shape (phases,).
        devices, usd_per_hour: of a replica, and of a device, of each phase.
    """

    count: Ints
    rate: Array
    tpot: Array
    decode: Array
    watts: Array
    start: Ints
    length: Ints
    devices: Ints
    usd_per_hour: Array

    @classmethod
    def of(cls, question: ServingQuestion, decoding: Sequence[Phase]) -> _DecodePools:
        """The counts that the constraints leave."""
        counts = [_thinned(_counts(question, len(phase.ttft))) for phase in decoding]
        length = np.array([len(count) for count in counts], np.int32)
        devices = np.array([phase.shape.devices for phase in decoding], np.int32)
        usd = np.array([phase.shape.offer.usd_per_hour for phase in decoding])

        def figures(read: Callable[[Phase], Array]) -> Array:
            return np.concatenate([read(phase)[at - 1] for phase, at in zip(decoding, counts, strict=True)])

        return cls(
            count=np.concatenate(counts),
            rate=figures(lambda phase: phase.rate),
            tpot=figures(lambda phase: phase.tpot),
            decode=figures(lambda phase: phase.decode),
            watts=figures(lambda phase: phase.watts),
            start=np.cumsum(length, dtype=np.int32) - length,
            length=length,
            devices=devices,
            usd_per_hour=usd,
        )


def _apart(
    question: ServingQuestion, first: int, prefill: Phase, pools: _DecodePools, decoding: Sequence[Phase]
) -> tuple[np.ndarray, ...]:
    """Rows of a prefill pool beside every decode pool that it was scored with."""
    offer = prefill.shape.offer
    decode_pools = linked(prefill, decoding, question.devices)
    most_devices = np.array(
        [offer.devices if phase.shape.offer.name == offer.name else np.inf for phase in decoding]
    )
    every, lengths = _thinned(_counts(question, len(prefill.ttft))), pools.length[decode_pools]
    sizes = len(every) * lengths
    block = np.repeat(np.arange(len(decode_pools), dtype=np.int32), sizes)
    place = np.arange(len(block), dtype=np.int32) - (np.cumsum(sizes, dtype=np.int32) - sizes)[block]
    turn, row_in_pool = np.divmod(place, lengths[block])
    second = decode_pools[block]
    row = pools.start[second] + row_in_pool
    before, after = every[turn], pools.count[row]
    devices = before * prefill.shape.devices + after * pools.devices[second]
    fits = (devices <= question.devices) & (devices <= most_devices[second])
    before, after, devices, row, second = (part[fits] for part in (before, after, devices, row, second))
    goodput = np.minimum(before * prefill.rate[before - 1], after * pools.rate[row])
    links = np.where((before > 1) & (after > 1), BLOCKED_LINK, BUSY_LINK) * after / prefill.sending_s
    goodput = np.minimum(goodput, links)
    usd = before * prefill.shape.devices * offer.usd_per_hour
    usd = usd + after * pools.devices[second] * pools.usd_per_hour[second]
    load = goodput if question.rate is None else np.full(len(goodput), question.rate)
    if question.objective == "goodput":
        load = np.minimum(load, goodput)
    slow = load > links
    sent = prefill.decode[before - 1]
    return (
        np.full_like(before, first),
        second,
        np.stack([before, after]),
        devices,
        usd,
        goodput,
        np.where(slow, NEVER, prefill.ttft[before - 1]),
        pools.tpot[row] + sent / max(question.output - 1.0, 1.0),
        pools.decode[row] + sent,
        prefill.watts[before - 1] + pools.watts[row],
    )
