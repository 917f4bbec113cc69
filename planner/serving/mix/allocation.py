"""Which replicas to rent and which requests to send to them: an integer program.

The program is that of Mélange (Griggs et al., arXiv:2404.14527, section 5.2): a bucket's rate is cut into
equal slices, a slice goes to one type, and the load of a type's slices fits in its replicas. A type may come
in several shapes, devices may run short, and all devices may draw no more than a power budget. Slices of one
bucket are equal, so a whole number of them stands for the paper's binary variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import InfeasibleError, InputError

Array = NDArray[np.float64]

TIME_LIMIT_S = 20.0
"""Seconds after which the solver stops and states its bound."""
GAP = 1e-6
"""Relative gap between cost and bound at which a mix counts as the best."""

GET_SOLVER = "a mix of GPU types needs PuLP and HiGHS; install them with: pip install '.[mix]'"


@dataclass(frozen=True)
class Costs:
    """Cost and capacity of replicas; an option is a shape of replicas of one GPU type.

    Attributes:
        price: $ an hour of one replica, shape (options,).
        load: share of one replica's time that a bucket's whole rate takes, shape (options, buckets);
            infinite where the targets are missed.
        type_of: index of each option's type, shape (options,).
        devices: devices of one replica, shape (options,).
        available: devices of each type, infinite where nothing limits them, shape (types,).
        watts: power of one busy replica, W, shape (options,).
    """

    price: Array
    load: Array
    type_of: NDArray[np.int64]
    devices: Array
    available: Array
    watts: Array


@dataclass(frozen=True)
class Allocation:
    """A solved program.

    Attributes:
        replicas: number of replicas of each option, shape (options,).
        share: share of each bucket's rate that each option serves, shape (options, buckets).
        usd_per_hour: price of all replicas, $ an hour.
        bound: no mix costs less than this, $ an hour.
    """

    replicas: NDArray[np.int64]
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
    try:
        import pulp
    except ImportError:
        raise InputError(GET_SOLVER) from None
    problem = pulp.LpProblem("mix", pulp.LpMinimize)
    options, buckets = costs.load.shape
    replicas = [problem.add_variable(f"n_{option}", 0, None, pulp.LpInteger) for option in range(options)]
    sent = {
        (option, bucket): problem.add_variable(f"x_{option}_{bucket}", 0, slices, pulp.LpInteger)
        for option, bucket in np.argwhere(np.isfinite(costs.load)).tolist()
    }
    problem += pulp.lpSum(float(price) * count for price, count in zip(costs.price, replicas, strict=True))
    for bucket in range(buckets):
        problem += pulp.lpSum(sent[at] for at in sent if at[1] == bucket) == slices
    for option, count in enumerate(replicas):
        loads = [float(costs.load[at]) / slices * part for at, part in sent.items() if at[0] == option]
        problem += pulp.lpSum(loads) <= count
    for kind, most in enumerate(costs.available):
        if np.isfinite(most):
            held = [float(costs.devices[at]) * replicas[at] for at in np.flatnonzero(costs.type_of == kind)]
            problem += pulp.lpSum(held) <= float(most)
    if watts is not None:
        drawn = zip(costs.watts, replicas, strict=True)
        problem += pulp.lpSum(float(power) * count for power, count in drawn) <= watts
    solver = pulp.HiGHS(msg=False, timeLimit=time_limit_s, gapRel=GAP / 10, threads=1)
    if not solver.available():
        raise InputError(GET_SOLVER)
    problem.solve(solver)
    if problem.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        raise InfeasibleError(_why(problem.sol_status == pulp.LpSolutionNoSolutionFound, time_limit_s, watts))
    counts = np.array([round(count.value() or 0.0) for count in replicas], np.int64)
    share = np.zeros((options, buckets))
    for at, part in sent.items():
        share[at] = round(part.value() or 0.0) / slices
    cost = float(costs.price @ counts)
    solved: Any = problem.solverModel
    return Allocation(counts, share, cost, min(float(solved.getInfo().mip_dual_bound), cost))


def _why(late: bool, time_limit_s: float, watts: float | None) -> str:
    if late:
        return f"the solver found no mix within {time_limit_s:g} s; fewer types, shapes or slices would help"
    budget = f" within {watts:,.0f} W" if watts is not None else ""
    return f"the devices available cannot carry the load{budget}; more devices or wider targets would help"
