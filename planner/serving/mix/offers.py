"""Replicas of the GPU types on offer, with the load that a bucket puts on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.errors import InfeasibleError
from planner.serving.mix.allocation import TOGETHER, Costs, Ways
from planner.serving.mix.buckets import Bucket
from planner.serving.offers import Offer
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import (
    DECODE,
    MIXED,
    PREFILL,
    ROLES,
    ReplicaCases,
    best_of_group,
    largest_rate,
)
from planner.serving.roles import LEAST_RATE
from planner.serving.scored_deployments import BUSY_LINK
from planner.serving.shapes import ReplicaShape, shapes

Array = NDArray[np.float64]

LEAST_LOAD = 1e-4
"""Least load of a bucket, in replicas: with tiny loads, HiGHS calls worse mixes optimal."""


@dataclass(frozen=True, eq=False)
class Option:
    """Replicas of one shape on one type in one role, with one pair of the engine's limits.

    Attributes:
        offer: its type.
        shape, budget, sequences: shape, token budget and sequence limit of a replica.
        role: an index of ``ROLES``.
        rates: largest rate of each bucket alone within the targets, requests a second, shape
            (links, buckets); of prefill replicas for every width of the link, of others one row.
        widths: bandwidths of the links to decode replicas, B/s, shape (links,).
        watts: power of a busy replica, W.
    """

    offer: Offer
    shape: ReplicaShape
    budget: int
    sequences: int
    role: int
    rates: Array
    widths: Array
    watts: float

    @property
    def usd_per_hour(self) -> float:
        """Price of a replica."""
        return self.offer.usd_per_hour * self.shape.devices

    def describe(self) -> str:
        """Role, device and shape."""
        role = "" if self.role == MIXED else f"{ROLES[self.role]} "
        return f"{role}{self.offer.name} {self.shape.describe()}"


def offer_question(question: ServingQuestion, offer: Offer, longest: Bucket) -> ServingQuestion:
    """The question of one type: replicas within a node, for the longest bucket."""
    most_ranks = (
        offer.cluster.domain if offer.available is None else min(offer.cluster.domain, offer.available)
    )
    fixed = {**question.fix, "pipeline": question.fix.get("pipeline", 1)}
    return replace(
        question.at(offer.resized(most_ranks)),
        workload=longest.workload(question.workload),
        fix=fixed,
        split=False,
    )


def options(
    question: ServingQuestion,
    offers: Sequence[Offer],
    demand: Sequence[Bucket],
    progress: Callable[[float], None] | None = None,
) -> tuple[list[Option], Mapping[str, str]]:
    """Every replica that can be rented, and why a type has none.

    Args:
        question: its ``split`` says whether prompts and outputs may run on different replicas.
        offers: GPU types.
        found: buckets of the workload.
        progress: called with the finished share.

    Returns:
        The options, and by the name of a device why nothing of it is among them.
    """
    longest = max(demand, key=lambda bucket: bucket.prompt + bucket.output)
    rentable: list[tuple[ServingQuestion, Offer, list[ReplicaShape]]] = []
    without: dict[str, str] = {}
    for offer in offers:
        try:
            alone = offer_question(question, offer, longest)
            rentable.append((alone, offer, list(shapes(alone, Counter()))))
        except InfeasibleError as error:
            without[offer.name] = str(error)
    narrowest = {min(shape.nic_bandwidth for shape in fitting) for _, _, fitting in rentable if fitting}
    roles = (MIXED, PREFILL, DECODE) if question.splits else (MIXED,)
    listed: list[Option] = []
    for number, (alone, offer, fitting) in enumerate(rentable):
        mine = [
            option
            for shape in fitting
            for role in roles
            for option in _options(alone, offer, shape, role, demand, narrowest)
        ]
        listed += _undominated([option for option in mine if np.any(option.rates > 0)])
        if progress:
            progress((number + 1) / len(rentable))
    paired = {PREFILL, DECODE} <= {option.role for option in listed}
    listed = [option for option in listed if option.role == MIXED or paired]
    able = {option.offer.name for option in listed}
    for alone, offer, fitting in rentable:
        if offer.name not in able:
            why = "meets the targets" if fitting else f"holds {question.model.name}"
            without[offer.name] = f"no replica of up to {alone.devices} {offer.name} {why}"
    return listed, without


def _options(
    question: ServingQuestion,
    offer: Offer,
    shape: ReplicaShape,
    role: int,
    demand: Sequence[Bucket],
    narrowest: set[float],
) -> list[Option]:
    """Replicas under the limits that carry the buckets of most requests, prompts and outputs best."""
    typical = {
        max(range(len(demand)), key=lambda index: demand[index].rate * weight(demand[index]))
        for weight in (lambda bucket: 1.0, lambda bucket: bucket.prompt, lambda bucket: bucket.output)
    }
    nic_bandwidth = shape.nic_bandwidth
    widths = (
        sorted({nic_bandwidth, *(min(nic_bandwidth, width) for width in narrowest)})
        if role == PREFILL
        else [nic_bandwidth]
    )
    limits: dict[tuple[float, float], None] = {}
    for index in sorted(typical, key=lambda index: -demand[index].rate):
        alone = replace(question, workload=demand[index].workload(question.workload))
        cases = ReplicaCases.of(alone, [shape], [role])
        group = np.zeros(len(cases), np.int64)
        best = int(best_of_group(largest_rate(cases), group)[0])
        limits[float(cases.budget[best]), float(cases.sequences[best])] = None
    every = len(demand) * len(widths)
    listed = []
    for budget, sequences in limits:
        cases = ReplicaCases.of(question, [shape], [role])[np.zeros(every, np.int64)]
        best_cases = replace(
            cases,
            budget=np.full(every, budget),
            sequences=np.full(every, sequences),
            prompt=np.tile([bucket.prompt for bucket in demand], len(widths)),
            output=np.tile([bucket.output for bucket in demand], len(widths)),
            bandwidth=np.repeat(widths, len(demand)),
        )
        rates = largest_rate(best_cases)
        state = best_cases.state(np.maximum(rates, LEAST_RATE))
        if role == DECODE:
            rates = np.minimum(rates, BUSY_LINK / best_cases.sending_s)
        if role != MIXED:
            rates = np.where(best_cases.output < 2, 0.0, rates)
        watts = float(np.max(np.where(rates > 0, state.watts, 0.0)))
        table = rates.reshape(len(widths), len(demand))
        listed.append(Option(offer, shape, int(budget), int(sequences), role, table, np.array(widths), watts))
    return listed


def _undominated(listed: list[Option]) -> list[Option]:
    """The options of one type that no other of their role beats in devices, power and every rate."""

    def beats(better: Option, other: Option) -> bool:
        return (
            better.role == other.role
            and better.rates.shape == other.rates.shape
            and better.shape.devices <= other.shape.devices
            and better.watts <= other.watts
            and bool(np.all(better.widths >= other.widths) and np.all(better.rates >= other.rates))
        )

    return [
        option
        for index, option in enumerate(listed)
        if not any(
            beats(other, option) and (not beats(option, other) or rank < index)
            for rank, other in enumerate(listed)
            if other is not option
        )
    ]


def costs_of(rented: Sequence[Option], offers: Sequence[Offer], demand: Sequence[Bucket]) -> Costs:
    """The options as arrays; prefill replicas have a way for every type that decodes."""
    rate = np.array([bucket.rate for bucket in demand])
    type_of = np.array([offers.index(option.offer) for option in rented], np.int64)
    decoding = sorted(
        {int(kind) for kind, choice in zip(type_of, rented, strict=True) if choice.role == DECODE}
    )
    narrowest = {
        kind: min(
            choice.shape.nic_bandwidth
            for at, choice in zip(type_of, rented, strict=True)
            if at == kind and choice.role == DECODE
        )
        for kind in decoding
    }
    ways: list[tuple[int, bool, int]] = []
    rates = []
    for index, option in enumerate(rented):
        if option.role != PREFILL:
            alone = option.role == MIXED
            ways.append((index, not alone, TOGETHER if alone else int(type_of[index])))
            rates.append(option.rates[0])
            continue
        for kind in decoding:
            nic_bandwidth = option.shape.nic_bandwidth
            width = nic_bandwidth if kind == type_of[index] else min(nic_bandwidth, narrowest[kind])
            ways.append((index, False, kind))
            rates.append(option.rates[int(np.searchsorted(option.widths, width, side="right")) - 1])
    with np.errstate(divide="ignore"):
        load = np.where(np.stack(rates) > 0, np.maximum(rate / np.stack(rates), LEAST_LOAD), np.inf)
    available = [np.inf if offer.available is None else offer.available for offer in offers]
    columns = [np.array(column) for column in zip(*ways, strict=True)]
    return Costs(
        price=np.array([option.usd_per_hour for option in rented]),
        load=load,
        ways=Ways(columns[0], columns[1], columns[2]),
        type_of=type_of,
        devices=np.array([option.shape.devices for option in rented], float),
        available=np.array(available, float),
        watts=np.array([option.watts for option in rented]),
        names=tuple(offer.name for offer in offers),
        rate=float(rate.sum()),
    )
