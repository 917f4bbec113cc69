"""Which replicas to rent and which requests to send to them: an integer program.

The program is that of Mélange (Griggs et al., arXiv:2404.14527, section 5.2): a bucket's rate is cut into
equal slices, a slice goes to one type, and the load of a type's slices fits in its replicas. A type may come
in several shapes, devices may run short, and all devices may draw no more than a power budget. Slices of one
bucket are equal, so a whole number of them stands for the paper's binary variables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import InfeasibleError
from core.solver import highs, solver_library

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

TIME_LIMIT_S = 20.0
"""Seconds after which the solver stops and states its bound."""
GAP = 1e-6
"""Relative gap between cost and bound at which a mix counts as the best."""

QUESTION = "a mix of GPU types"


TOGETHER = -1
"""Receiver of a way whose replicas run prompts and outputs."""


@dataclass(frozen=True)
class Ways:
    """Ways to serve a slice: replicas of an option, and for prompts alone the type that decodes.

    Attributes:
        option: replicas of each way, shape (ways,).
        decodes: whether they run outputs alone, shape (ways,).
        receiver: type on which the outputs of the slice run; ``TOGETHER`` for replicas that run both.
    """

    option: Ints
    decodes: NDArray[np.bool_]
    receiver: Ints

    @classmethod
    def together(cls, options: int) -> Ways:
        """Every option runs prompts and outputs."""
        return cls(np.arange(options), np.zeros(options, bool), np.full(options, TOGETHER))


@dataclass(frozen=True)
class Costs:
    """Cost and capacity of replicas; an option is a shape of replicas of one GPU type in one role.

    Attributes:
        price: $ an hour of one replica, shape (options,).
        load: share of one replica's time that a bucket's whole rate takes, shape (ways, buckets);
            infinite where the targets are missed.
        ways: ways to serve a slice.
        type_of: index of each option's type, shape (options,).
        devices: devices of one replica, shape (options,).
        available: devices of each type, infinite where nothing limits them, shape (types,).
        watts: power of one busy replica, W, shape (options,).
        names: of the types.
        rate: of all buckets, requests a second.
    """

    price: Array
    load: Array
    ways: Ways
    type_of: Ints
    devices: Array
    available: Array
    watts: Array
    names: tuple[str, ...]
    rate: float

    def of_type(self, kind: int) -> Costs:
        """The options of one type."""
        mine = self.type_of == kind
        fields = {name: getattr(self, name)[mine] for name in ("price", "devices", "watts")}
        first = np.zeros(int(mine.sum()), np.int64)
        only = slice(kind, kind + 1)
        type_ways = self.ways_of_type(kind)
        receiver = np.where(self.ways.receiver[type_ways] == TOGETHER, TOGETHER, 0)
        option = (np.cumsum(mine) - 1)[self.ways.option[type_ways]]
        return replace(
            self,
            **fields,
            load=self.load[type_ways],
            ways=Ways(option, self.ways.decodes[type_ways], receiver),
            type_of=first,
            available=self.available[only],
            names=self.names[only],
        )

    def ways_of_type(self, kind: int) -> NDArray[np.bool_]:
        """Ways that use one type alone, shape (ways,)."""
        return (self.type_of[self.ways.option] == kind) & np.isin(self.ways.receiver, (TOGETHER, kind))

    @property
    def served(self) -> NDArray[np.bool_]:
        """Buckets that some way serves within the targets, shape (buckets,)."""
        able, ways = np.isfinite(self.load), self.ways
        servable: NDArray[np.bool_] = np.any(able[ways.receiver == TOGETHER], axis=0)
        for kind in range(len(self.available)):
            here = ways.receiver == kind
            parts = able[here & ways.decodes], able[here & ~ways.decodes]
            servable = servable | np.logical_and(*(np.any(part, axis=0) for part in parts))
        return servable


@dataclass(frozen=True)
class Allocation:
    """A solved program.

    Attributes:
        replicas: number of replicas of each option, shape (options,).
        share: share of each bucket's rate that each way serves, shape (ways, buckets).
        usd_per_hour: price of all replicas, $ an hour.
        bound: no mix costs less than this, $ an hour.
    """

    replicas: Ints
    share: Array
    usd_per_hour: float
    bound: float

    @property
    def gap(self) -> float:
        """How far below the cost the bound lies, as a share."""
        return max(1 - self.bound / self.usd_per_hour, 0.0) if self.usd_per_hour else 0.0

    @property
    def proved(self) -> bool:
        """Whether no mix costs less."""
        return self.gap <= GAP


class MixProgram:
    """The constraints that every mix keeps: each slice is served, and loads fit in the replicas.

    Prompts of a slice may run apart from its outputs: for every type, as many slices decode on it as are sent
    to it.

    Args:
        costs: the replicas on offer.
        slices: equal parts of each bucket's rate.
        sense: 1 to minimise the objective, -1 to maximise it.
        part: serve a share of every bucket, a variable, in parts of slices.

    Raises:
        InputError: PuLP or HiGHS is not installed.
    """

    def __init__(self, costs: Costs, slices: int, sense: int = 1, part: bool = False) -> None:
        pulp = solver_library(QUESTION)
        self.pulp, self.costs = pulp, costs
        self.problem = problem = pulp.LpProblem("mix", sense)
        buckets = costs.load.shape[1]
        category = pulp.LpContinuous if part else pulp.LpInteger
        self.share: Any = problem.add_variable("served", 0, 1) if part else 1
        self.replicas = [
            problem.add_variable(f"n_{option}", 0, None, pulp.LpInteger) for option in range(len(costs.price))
        ]
        self.sent = {
            (way, bucket): problem.add_variable(f"x_{way}_{bucket}", 0, slices, category)
            for way, bucket in np.argwhere(np.isfinite(costs.load)).tolist()
        }
        ways = costs.ways
        for bucket in range(buckets):
            self.keep(self._slices(~ways.decodes, bucket) == slices * self.share)
            for kind in np.unique(ways.receiver[ways.decodes]):
                here = ways.receiver == kind
                decoded = self._slices(here & ways.decodes, bucket)
                self.keep(self._slices(here & ~ways.decodes, bucket) == decoded)
        for option, count in enumerate(self.replicas):
            mine = np.flatnonzero(ways.option == option).tolist()
            loads = [
                float(costs.load[way, bucket]) / slices * self.sent[way, bucket]
                for way in mine
                for bucket in range(buckets)
                if (way, bucket) in self.sent
            ]
            self.keep(pulp.lpSum(loads) <= count)

    def _slices(self, ways: NDArray[np.bool_], bucket: int) -> Any:
        """Slices of a bucket that some ways serve, as an expression."""
        at = [(way, bucket) for way in np.flatnonzero(ways).tolist()]
        return self.pulp.lpSum(self.sent[piece] for piece in at if piece in self.sent)

    def keep(self, constraint: Any) -> None:
        """Add a constraint, or the objective."""
        self.problem += constraint

    def devices(self, kind: int) -> Any:
        """Devices of a type, as an expression."""
        mine = np.flatnonzero(self.costs.type_of == kind)
        return self.pulp.lpSum(float(self.costs.devices[at]) * self.replicas[at] for at in mine)

    def total(self, of_each: Array) -> Any:
        """Sum of a figure over the replicas, as an expression."""
        return self.pulp.lpSum(
            float(figure) * count for figure, count in zip(of_each, self.replicas, strict=True)
        )

    def hold_available(self) -> None:
        """Rent no more devices of a type than there are."""
        for kind, available in enumerate(self.costs.available):
            if np.isfinite(available):
                self.keep(self.devices(kind) <= float(available))

    def solve(self, time_limit_s: float) -> bool:
        """Solve; whether a mix was found.

        Raises:
            InputError: HiGHS is not installed.
        """
        self.problem.solve(highs(QUESTION, time_limit_s, GAP / 10))
        feasible = self.pulp.LpSolutionOptimal, self.pulp.LpSolutionIntegerFeasible
        return self.problem.sol_status in feasible

    @property
    def late(self) -> bool:
        """Whether the solver stopped before it found a mix or proved that there is none."""
        return self.problem.sol_status == self.pulp.LpSolutionNoSolutionFound


def allocate(
    costs: Costs, slices: int, watts: float | None = None, time_limit_s: float = TIME_LIMIT_S
) -> Allocation:
    """Rent the cheapest replicas that carry every bucket.

    Args:
        costs: the replicas on offer.
        slices: equal parts of each bucket's rate.
        watts: maximum power of all replicas, W.
        time_limit_s: time limit of the solver, s.

    Raises:
        InputError: PuLP or HiGHS is not installed.
        InfeasibleError: the devices available cannot carry the load, or the solver found no mix in time.
    """
    program = MixProgram(costs, slices)
    program.keep(program.total(costs.price))
    program.hold_available()
    if watts is not None:
        program.keep(program.total(costs.watts) <= watts)
    if not program.solve(time_limit_s):
        if program.late:
            raise InfeasibleError(
                f"the solver found no mix within {time_limit_s:g} s; fewer types, shapes or slices would help"
            )
        raise InfeasibleError(shortage(costs, slices, watts, time_limit_s))
    counts = np.array([round(count.value() or 0.0) for count in program.replicas], np.int64)
    share = np.zeros(costs.load.shape)
    for at, part in program.sent.items():
        share[at] = round(part.value() or 0.0) / slices
    cost = float(costs.price @ counts)
    solved: Any = program.problem.solverModel
    return Allocation(counts, share, cost, min(float(solved.getInfo().mip_dual_bound), cost))


def shortage(costs: Costs, slices: int, watts: float | None, time_limit_s: float) -> str:
    """Which types are short, the devices that would carry the load, and the load that can be carried.

    Two more programs: the extra devices of the least price (and the least power), and the largest part of the
    load, in the same proportions of the buckets, on what is available.
    """
    carried = carried_share(costs, slices, watts, time_limit_s)
    least = np.array(
        [np.min(costs.price[mine] / costs.devices[mine], initial=np.inf) for mine in _members(costs)]
    )
    program = MixProgram(costs, slices)
    extra = [
        program.problem.add_variable(
            f"extra_{kind}", 0, 0 if np.isinf(available) else None, program.pulp.LpInteger
        )
        for kind, available in enumerate(costs.available)
    ]
    for kind, available in enumerate(costs.available):
        if np.isfinite(available):
            program.keep(program.devices(kind) <= float(available) + extra[kind])
    priced_extras = zip(np.where(np.isfinite(least), np.maximum(least, 1e-3), 1.0), extra, strict=True)
    cost = program.pulp.lpSum(float(price) * more for price, more in priced_extras)
    # Of equal numbers of extra devices, those of the least power, then price.
    program.keep(cost + 1e-6 * program.total(costs.watts if watts is not None else costs.price))
    parts = []
    if program.solve(time_limit_s):
        counts = [round(more.value() or 0.0) for more in extra]
        parts = [
            f"{costs.names[kind]} ({costs.available[kind]:,.0f} available, "
            f"{costs.available[kind] + more:,.0f} needed)"
            for kind, more in enumerate(counts)
            if more
        ]
        needed = sum(
            float(power) * round(count.value() or 0.0)
            for power, count in zip(costs.watts, program.replicas, strict=True)
        )
        if watts is not None and needed > watts:
            parts.append(f"power ({watts:,.0f} W available, {needed:,.0f} W needed)")
    budget = f" within {watts:,.0f} W" if watts is not None else ""
    short = f"; short of {', '.join(parts)}" if parts else ""
    return (
        f"the devices available cannot carry the load{budget}{short}; they carry about "
        f"{carried * costs.rate:,.2f} of {costs.rate:,.10g} requests/s within the targets; "
        "more devices, a lower rate or wider targets would help"
    )


def carried_share(costs: Costs, slices: int, watts: float | None, time_limit_s: float) -> float:
    """The largest share of every bucket's rate that the devices available carry."""
    program = MixProgram(costs, slices, sense=-1, part=True)
    program.keep(program.share)
    program.hold_available()
    if watts is not None:
        program.keep(program.total(costs.watts) <= watts)
    return float(program.share.value() or 0.0) if program.solve(time_limit_s) else 0.0


def _members(costs: Costs) -> list[NDArray[np.bool_]]:
    return [costs.type_of == kind for kind in range(len(costs.available))]
