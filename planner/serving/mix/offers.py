"""Replicas of the GPU types on offer, with the load that a bucket puts on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import InfeasibleError
from planner.serving.mix.allocation import Costs
from planner.serving.mix.buckets import Bucket
from planner.serving.offers import Offer
from planner.serving.question import ServingQuestion
from planner.serving.score import ReplicaCases, best_of_group, largest_rate
from planner.serving.scores import LEAST_RATE
from planner.serving.shapes import ReplicaShape, shapes

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Option:
    """Replicas of one shape on one type, with the engine's limits that carry the most frequent bucket best.

    Attributes:
        offer: its type.
        shape, budget, sequences: shape, token budget and sequence limit of a replica.
        rates: largest rate of each bucket alone within the targets, requests a second, shape (buckets,).
        watts: power of a busy replica, W.
    """

    offer: Offer
    shape: ReplicaShape
    budget: int
    sequences: int
    rates: Array
    watts: float

    @property
    def usd_per_hour(self) -> float:
        """Price of a replica."""
        return self.offer.usd_per_hour * self.shape.devices

    def describe(self) -> str:
        """Device and shape."""
        return f"{self.offer.name} {self.shape.describe()}"


def offer_question(question: ServingQuestion, offer: Offer, longest: Bucket) -> ServingQuestion:
    """The question of one type: replicas within a node, for the longest bucket."""
    most = offer.cluster.domain if offer.available is None else min(offer.cluster.domain, offer.available)
    held = {**question.fix, "pipeline": question.fix.get("pipeline", 1)}
    return replace(
        question.at(offer.resized(most)),
        workload=longest.workload(question.workload),
        fix=held,
        split=False,
    )


def options(
    question: ServingQuestion, offers: Sequence[Offer], found: Sequence[Bucket]
) -> tuple[list[Option], Mapping[str, str]]:
    """Every replica that can be rented, and why a type has none.

    Returns:
        The options, and by the name of a device why nothing of it is among them.
    """
    longest = max(found, key=lambda bucket: bucket.prompt + bucket.output)
    made: list[Option] = []
    without: dict[str, str] = {}
    for offer in offers:
        try:
            alone = offer_question(question, offer, longest)
            fitting = [_option(alone, offer, shape, found) for shape in shapes(alone, Counter())]
        except InfeasibleError as error:
            without[offer.name] = str(error)
            continue
        useful = [option for option in fitting if np.any(option.rates > 0)]
        if not useful:
            why = "meets the targets" if fitting else f"holds {question.model.name}"
            without[offer.name] = f"no replica of up to {alone.devices} {offer.name} {why}"
        made += useful
    return made, without


def _option(question: ServingQuestion, offer: Offer, shape: ReplicaShape, found: Sequence[Bucket]) -> Option:
    """Choose the limits that carry the most frequent bucket best, then rate every bucket under them."""
    typical = max(found, key=lambda bucket: bucket.rate)
    cases = ReplicaCases.of(replace(question, workload=typical.workload(question.workload)), [shape])
    alone = np.zeros(len(cases), np.int64)
    best = best_of_group(largest_rate(cases, group=alone), alone)
    chosen = replace(
        cases[np.repeat(best, len(found))],
        question=question,
        prompt=np.array([bucket.prompt for bucket in found]),
        output=np.array([bucket.output for bucket in found]),
    )
    rates = largest_rate(chosen)
    state = chosen.state(np.maximum(rates, LEAST_RATE))
    budget, sequences = int(chosen.budget[0]), int(chosen.sequences[0])
    watts = float(np.max(np.where(rates > 0, state.watts, 0.0)))
    return Option(offer, shape, budget, sequences, rates, watts)


def costs_of(found: Sequence[Option], offers: Sequence[Offer], wanted: Sequence[Bucket]) -> Costs:
    """The options as arrays."""
    rate = np.array([bucket.rate for bucket in wanted])
    rates = np.stack([option.rates for option in found])
    with np.errstate(divide="ignore"):
        load = np.where(rates > 0, rate / rates, np.inf)
    available = [np.inf if offer.available is None else offer.available for offer in offers]
    return Costs(
        price=np.array([option.usd_per_hour for option in found]),
        load=load,
        type_of=np.array([offers.index(option.offer) for option in found], np.int64),
        devices=np.array([option.shape.devices for option in found], float),
        available=np.array(available, float),
        watts=np.array([option.watts for option in found]),
        names=tuple(offer.name for offer in offers),
        rate=float(rate.sum()),
    )
