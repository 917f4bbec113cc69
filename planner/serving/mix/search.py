"""The cheapest mix of GPU types for a workload, beside the cheapest of one type alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.errors import InfeasibleError, InputError
from core.solver import solver_library
from planner.serving.mix.allocation import QUESTION, TIME_LIMIT_S, Allocation, Costs, allocate
from planner.serving.mix.buckets import Bucket, buckets
from planner.serving.mix.offers import Option, costs_of, options
from planner.serving.offers import Offer, check_types
from planner.serving.question import ServingQuestion

SLICES = 8
"""Parts of a bucket's rate, as in Mélange's evaluation."""


@dataclass(frozen=True, eq=False, repr=False)
class Mix:
    """A mix that was found.

    Attributes:
        question: model, targets, engine and what is held.
        offers: GPU types on offer.
        buckets: of the workload.
        options: replicas that could be rented.
        costs: their prices and loads.
        best: the cheapest allocation.
        alone: by device, the cheapest allocation of that type alone, or why there is none.
        without: by device, why no replica of it serves.
    """

    question: ServingQuestion
    offers: Sequence[Offer]
    buckets: Sequence[Bucket]
    options: Sequence[Option]
    costs: Costs
    best: Allocation
    alone: Mapping[str, Allocation | str]
    without: Mapping[str, str]

    def __repr__(self) -> str:
        """The model, the rate, the offers, and what is rented."""
        names = ", ".join(offer.name for offer in self.offers[:12])
        rented = [
            f"{count} x {option.describe()}: {count * option.usd_per_hour:.2f} $ an hour"
            for option, count, _ in self.pools[:12]
        ]
        head = f"Mix({self.question.model.name} at {self.rate:.3g} requests/s on {names})"
        return "\n".join([head, *rented])

    @property
    def rate(self) -> float:
        """Requests a second."""
        return sum(bucket.rate for bucket in self.buckets)

    @property
    def saving(self) -> float | None:
        """Share of the cheapest single type's cost that the mix saves; None where no type serves alone."""
        costs = [
            allocation.usd_per_hour
            for allocation in self.alone.values()
            if isinstance(allocation, Allocation)
        ]
        return 1 - self.best.usd_per_hour / min(costs) if costs else None

    @property
    def output_tokens_s(self) -> float:
        """Output tokens a second of all replicas."""
        return sum(bucket.rate * bucket.output for bucket in self.buckets)

    def share(self, option: int) -> NDArray[np.float64]:
        """Share of each bucket's requests of which an option runs prompts or outputs, shape (buckets,)."""
        return self.best.share[self.costs.ways.option == option].sum(axis=0)

    @property
    def pools(self) -> list[tuple[Option, int, NDArray[np.float64]]]:
        """Rented replicas: option, count, and share of each bucket's requests."""
        return [
            (option, int(count), self.share(index))
            for index, (option, count) in enumerate(zip(self.options, self.best.replicas, strict=True))
            if count
        ]

    @property
    def watts(self) -> float:
        """Power of all replicas while busy, W."""
        return float(
            sum(n * option.watts for n, option in zip(self.best.replicas, self.options, strict=True))
        )


def search_mix(
    question: ServingQuestion,
    offers: Sequence[Offer],
    slices: int = SLICES,
    watts: float | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    progress: Callable[[float], None] | None = None,
) -> Mix:
    """Find the cheapest mix.

    Args:
        question: its workload gives lengths, rate and targets; its cluster is not read.
        offers: GPU types.
        slices: equal parts of each bucket's rate.
        watts: maximum power of all devices, W.
        time_limit_s: time limit of the solver, s.
        progress: called with the finished share.

    Raises:
        InputError: a type twice, no targets, a workload without a rate, or no solver installed.
        InfeasibleError: no type serves a bucket, or the devices available cannot carry the load.
    """
    solver_library(QUESTION)
    check_types(tuple(offers), "--types")
    if not question.workload.slo.has_targets:
        raise InputError("a mix needs a target: ttft, tpot or e2e", "workload.slo")
    if question.rate is None:
        raise InputError("a mix needs requests that arrive at a rate", "workload.arrivals")
    demand = buckets(question.sample, question.rate)

    def report(share: float) -> None:
        if progress:
            progress(0.9 * share)

    listed, without = options(question, offers, demand, report)
    if not listed:
        raise InfeasibleError(f"no GPU type on offer serves the workload: {'; '.join(without.values())}")
    costs = costs_of(listed, offers, demand)
    _check_served(demand, costs.served)
    best = allocate(costs, slices, watts, time_limit_s)
    alone = {
        offer.name: without.get(offer.name) or _alone(costs, kind, slices, watts, time_limit_s)
        for kind, offer in enumerate(offers)
    }
    return Mix(question, offers, demand, listed, costs, best, alone, without)


def _alone(
    costs: Costs, kind: int, slices: int, watts: float | None, time_limit_s: float
) -> Allocation | str:
    """The cheapest allocation of one type, or why there is none."""
    mine = costs.type_of == kind
    only = costs.of_type(kind)
    if not only.served.all():
        return "misses the targets of some requests"
    try:
        allocation = allocate(only, slices, watts, time_limit_s)
    except InfeasibleError as error:
        return str(error)
    replicas, share = np.zeros(len(mine), np.int64), np.zeros(costs.load.shape)
    replicas[mine], share[costs.ways_of_type(kind)] = allocation.replicas, allocation.share
    return replace(allocation, replicas=replicas, share=share)


def _check_served(demand: Sequence[Bucket], served: NDArray[np.bool_]) -> None:
    """Refuse a workload with requests that no type serves within the targets.

    Raises:
        InfeasibleError: there are such requests.
    """
    if not served.all():
        missed = demand[int(np.argmin(served))]
        raise InfeasibleError(
            f"no GPU type on offer meets the targets for requests of {missed.prompt:,.0f} prompt and "
            f"{missed.output:,.0f} output tokens ({np.count_nonzero(~served)} of {len(demand)} buckets); "
            "wider targets, narrower weights or faster devices would help"
        )
