"""How many GPUs, and of which cluster: the best plan at each size, and the time and cost of all tokens.

Time falls with more devices and cost rises as they are used less well. The front holds the sizes that
no other size beats in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log, log10

from core.errors import InputError
from hwmodels.cluster import Cluster
from planner.training.constraints import Constraints
from planner.training.search import SearchResult, search
from simulator.setting import Setting

LEAST_SLOPE = 0.2
"""Fall of log days over log devices, below which no number of devices is promised."""
MOST_DEVICES = 1e7


@dataclass(frozen=True, eq=False, repr=False)
class Size:
    """One cluster at one number of devices.

    Attributes:
        cluster, gpus: the cluster and the number of its devices in use.
        result: the search there; None where no plan has a valid shape.
        problem: why there is no plan, else empty.
        days, usd, kwh: of training on all tokens with the first plan; infinite without one.
    """

    cluster: str
    gpus: int
    result: SearchResult | None
    problem: str
    days: float = float("inf")
    usd: float = float("inf")
    kwh: float = float("inf")

    def __repr__(self) -> str:
        """The size and its cost, or why there is no plan."""
        words = self.problem or f"{self.days:,.1f} days, {self.usd:,.0f} $"
        return f"Size({self.gpus:,} x {self.cluster}: {words})"

    @property
    def planned(self) -> bool:
        """Whether a plan fits."""
        return not self.problem


@dataclass(frozen=True, repr=False)
class Sizing:
    """All sizes, and which of them to look at.

    Attributes:
        tokens: tokens to train on.
        deadline_days: maximum days; None without a deadline.
        budget_usd: maximum dollars for all tokens; None without a budget.
        sizes: in the order of the clusters and counts.
    """

    tokens: float
    deadline_days: float | None
    sizes: Sequence[Size]
    budget_usd: float | None = None

    def __repr__(self) -> str:
        """The sizes on the front, one per line."""
        lines = [
            f"{size.gpus:,} x {size.cluster}: {size.days:,.1f} days, {size.usd:,.0f} $"
            for size in self.front[:8]
        ]
        return "\n".join([f"Sizing of {len(self.sizes)} sizes, {self.tokens:.3g} tokens", *lines])

    @property
    def front(self) -> list[Size]:
        """Sizes that no other size beats in both time and cost, cheapest first."""
        planned = sorted((s for s in self.sizes if s.planned), key=lambda size: (size.usd, size.days))
        front: list[Size] = []
        for size in planned:
            if not front or size.days < front[-1].days:
                front.append(size)
        return front

    @property
    def within(self) -> list[Size]:
        """Sizes that meet the deadline and the budget."""
        days = float("inf") if self.deadline_days is None else self.deadline_days
        usd = float("inf") if self.budget_usd is None else self.budget_usd
        return [size for size in self.sizes if size.planned and size.days <= days and size.usd <= usd]

    @property
    def cheapest(self) -> Size | None:
        """The cheapest size that meets the deadline and the budget."""
        return min(self.within, key=lambda size: size.usd, default=None)

    @property
    def fastest_within(self) -> Size | None:
        """The fastest size that meets the deadline and the budget."""
        return min(self.within, key=lambda size: size.days, default=None)

    @property
    def fastest(self) -> Size | None:
        """The fastest size of all."""
        return min((s for s in self.sizes if s.planned), key=lambda size: size.days, default=None)

    def devices_for(self, days: float) -> int | None:
        """Devices that would train all tokens in time, beyond the sizes tried.

        The two largest sizes of the fastest cluster give the exponent of days over devices; it is kept for
        larger ones. None where more devices hardly help.
        """
        largest = self.fastest
        if largest is None:
            return None
        same = [size for size in self.sizes if size.planned and size.cluster == largest.cluster]
        smaller = max((size for size in same if size.gpus < largest.gpus), key=lambda s: s.gpus, default=None)
        if smaller is None:
            slope = 1.0
        else:
            slope = log(smaller.days / largest.days) / log(largest.gpus / smaller.gpus)
        if slope < LEAST_SLOPE:
            return None
        devices = largest.gpus * (largest.days / days) ** (1 / min(slope, 1.0))
        if not devices < MOST_DEVICES:
            return None
        step = 10 ** max(floor(log10(devices)) - 1, 0)
        return ceil(devices / step) * step


def counts(cluster: Cluster, least: int, largest: int) -> list[int]:
    """Numbers of devices to try: doublings and their halves between, whole nodes beyond one node.

    Raises:
        InputError: the range is empty.
    """
    if least < 1 or largest < least:
        raise InputError(f"a range of GPUs is LEAST..MOST, found {least}..{largest}", "gpus")
    have, node = cluster.nodes * cluster.devices_per_node, cluster.devices_per_node
    tried = {least, min(largest, have)}
    base = least
    while base <= min(largest, have):
        tried |= {base, base * 3 // 2}
        base *= 2
    full = {count for count in tried if count <= min(largest, have) and (count <= node or count % node == 0)}
    return sorted(count for count in full if count >= least)


def size_up(
    settings: Sequence[tuple[Setting, Sequence[int]]],
    tokens: float,
    deadline_days: float | None,
    budget_usd: float | None,
    constraints: Constraints,
    objective: str,
    headroom: Callable[[Setting], float],
    progress: Callable[[float], None] | None = None,
    offload: bool = False,
) -> Sizing:
    """Search the best plan at every size.

    Args:
        settings: each cluster's setting and the numbers of devices to try there.
        tokens: tokens to train on.
        deadline_days, budget_usd: maximum days and dollars.
        constraints: fields of the plan to hold or to limit.
        objective: objective that ranks plans of one size.
        headroom: share of a device's memory to leave free, by setting.
        progress: called with the finished share.
        offload: try optimizer and gradients on the host and on SSDs too.
    """
    total, planned = sum(len(sizes) for _, sizes in settings), []
    for size in _sizes(settings, tokens, constraints, objective, headroom, offload):
        planned.append(size)
        if progress:
            progress(len(planned) / total)
    return Sizing(tokens, deadline_days, planned, budget_usd)


def _sizes(
    settings: Sequence[tuple[Setting, Sequence[int]]],
    tokens: float,
    constraints: Constraints,
    objective: str,
    headroom: Callable[[Setting], float],
    offload: bool,
) -> Iterator[Size]:
    for setting, sizes in settings:
        for gpus in sizes:
            name, free = setting.cluster.name, headroom(setting)
            sized = replace(setting, cluster=setting.cluster.resized(gpus))
            try:
                result = search(
                    sized, gpus, constraints, objective, headroom=free, offload=offload, recommended=True
                )
            except InputError as error:
                yield Size(name, gpus, None, error.problem.partition(":")[0])
                continue
            if not len(result.plans):
                words = result.shortfall.message().partition("\n")[0] if result.shortfall else "no plan fits"
                yield Size(name, gpus, result, words)
                continue
            metrics, millions = result.metrics, tokens / 1e6
            yield Size(
                name,
                gpus,
                result,
                "",
                days=tokens / float(metrics.tokens_per_day[0]),
                usd=float(metrics.usd_per_million_tokens[0]) * millions,
                kwh=float(metrics.kwh_per_million_tokens[0]) * millions,
            )
