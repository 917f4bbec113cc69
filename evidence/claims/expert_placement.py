"""Placement of experts on ranks: by affinity between layers (ExFlow), and copies of hot experts (EPLB).

A token that is on the rank of its next expert needs no exchange. Affinity is an input: the share of tokens of
expert i in one layer that go to expert j in the next. Yao et al., ExFlow (arXiv 2401.08383); DeepSeek's
expert-parallel load balancer (github.com/deepseek-ai/EPLB).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

GET_SOLVER = "placing experts needs PuLP and HiGHS; install them with: pip install '.[mix]'"
SWEEPS = 4
"""Times that every layer is placed again between its neighbours, at most."""


@dataclass(frozen=True)
class PlacedExperts:
    """Ranks of experts.

    Attributes:
        ranks: rank of each expert, shape (layers, experts).
        local: share of tokens that stay on their rank from a layer to the next.
    """

    ranks: Ints
    local: float


@dataclass(frozen=True)
class CopiedExperts:
    """Copies of experts on ranks.

    Attributes:
        count: copies of each expert, shape (experts,).
        slots: expert in each slot, shape (ranks, slots of a rank).
        imbalance: load of the busiest rank over the mean.
    """

    count: Ints
    slots: Ints
    imbalance: float


def synthetic_affinity(layers: int, experts: int, concentration: float, seed: int = 0) -> Array:
    """Affinity by a Zipf law: the k-th most likely next expert has a share in proportion to k^-concentration.

    Args:
        layers: of experts.
        experts: of a layer.
        concentration: exponent; 0 routes at random.
        seed: of the order of next experts.

    Returns:
        Shape (layers - 1, experts, experts); rows sum to 1, and all experts get about the same load.
    """
    random = np.random.default_rng(seed)
    shares = np.arange(1.0, experts + 1.0) ** -concentration
    shares /= shares.sum()
    affinity = np.empty((layers - 1, experts, experts))
    shifted = (np.arange(experts)[:, None] + np.arange(experts)[None, :]) % experts
    for layer in range(layers - 1):
        # Shifts of one order, renamed: every expert is the k-th choice of exactly one other.
        order, names = random.permutation(experts), random.permutation(experts)
        affinity[layer][np.arange(experts)[:, None], names[shifted]] = shares[order.argsort()][None, :]
    return affinity


def by_affinity(affinity: Array, ranks: int) -> PlacedExperts:
    """The placement that keeps most tokens on their rank, with as many experts on each rank.

    Layers are placed one after the other, each at its optimum (an integer program), then again between both
    neighbours until nothing is gained.

    Args:
        affinity: share of tokens of each expert that go to each expert of the next layer, shape (layers - 1,
            experts, experts).
        ranks: a divisor of the number of experts.

    Raises:
        InputError: the experts cannot be divided among the ranks, shares do not sum to 1, or no solver.
    """
    _, experts, _ = affinity.shape
    if experts % ranks:
        raise InputError(f"{experts} experts cannot be divided among {ranks} ranks", "placement")
    if affinity.min() < 0 or np.abs(affinity.sum(axis=2) - 1.0).max() > 1e-6:
        raise InputError("the shares of an expert's tokens must not be negative and sum to 1", "affinity")
    flows = _flows(affinity)
    placed = np.empty((len(flows) + 1, experts), dtype=np.int64)
    placed[0] = np.arange(experts) // (experts // ranks)
    for layer, flow in enumerate(flows):
        placed[layer + 1] = _assign(_gain(flow.T, placed[layer], ranks))
    best = _local(flows, placed)
    for _ in range(SWEEPS):
        for layer in range(len(placed)):
            gain = np.zeros((experts, ranks))
            if layer:
                gain += _gain(flows[layer - 1].T, placed[layer - 1], ranks)
            if layer < len(flows):
                gain += _gain(flows[layer], placed[layer + 1], ranks)
            placed[layer] = _assign(gain)
        local = _local(flows, placed)
        if local <= best + 1e-9:
            break
        best = local
    return PlacedExperts(placed, _local(flows, placed))


def in_order(affinity: Array, ranks: int) -> PlacedExperts:
    """Experts by their numbers, as frameworks place them."""
    experts = affinity.shape[1]
    row = np.arange(experts) // (experts // ranks)
    placed = np.tile(row, (len(affinity) + 1, 1))
    return PlacedExperts(placed, _local(_flows(affinity), placed))


def exchange_share(placement: PlacedExperts, ranks: int, exchanges: int = 1) -> float:
    """Bytes between ranks over those of two exchanges of randomly placed experts.

    Args:
        placement: of the experts.
        ranks: that hold them.
        exchanges: of a layer; 1 where a token goes on from its expert's rank (its context is on all ranks).
    """
    return exchanges / 2.0 * (1.0 - placement.local) / (1.0 - 1.0 / ranks)


def copies(loads: Sequence[float], ranks: int, slots: int) -> CopiedExperts:
    """Copies of hot experts in spare slots, and their ranks: EPLB's greedy rule.

    The expert with the most load a copy gets the next copy; copies go, the heaviest first, to the rank with
    least load that has a slot.

    Args:
        loads: of the experts.
        ranks: that hold them.
        slots: of a rank.

    Raises:
        InputError: fewer slots than experts.
    """
    load = np.asarray(loads, dtype=np.float64)
    experts = len(load)
    if ranks * slots < experts:
        raise InputError(f"{ranks} ranks x {slots} slots hold no {experts} experts", "slots")
    count = np.ones(experts, dtype=np.int64)
    for _ in range(ranks * slots - experts):
        count[np.argmax(load / count)] += 1
    items = np.repeat(np.arange(experts), count)
    weight = (load / count)[items]
    filled, busy = np.zeros(ranks, dtype=np.int64), np.zeros(ranks)
    placed = np.full((ranks, slots), -1)
    for item in np.argsort(-weight, kind="stable"):
        open_ = np.flatnonzero(filled < slots)
        rank = open_[np.argmin(busy[open_])]
        placed[rank, filled[rank]] = items[item]
        filled[rank] += 1
        busy[rank] += weight[item]
    return CopiedExperts(count, placed, float(busy.max() / busy.mean()))


def _flows(affinity: Array) -> list[Array]:
    """Share of all tokens by pair of experts, for each pair of layers."""
    load = np.full(affinity.shape[1], 1.0 / affinity.shape[1])
    flows = []
    for shares in affinity:
        flow = load[:, None] * shares
        flows.append(flow)
        load = flow.sum(axis=0)
    return flows


def _gain(flow: Array, other: Ints, ranks: int) -> Array:
    """Tokens that stay if an expert (row of ``flow``) lies on each rank, shape (experts, ranks)."""
    return flow @ (other[:, None] == np.arange(ranks)).astype(np.float64)


def _local(flows: Sequence[Array], placed: Ints) -> float:
    stay = [
        flow[placed[layer][:, None] == placed[layer + 1][None, :]].sum() for layer, flow in enumerate(flows)
    ]
    return float(np.mean(stay))


def _assign(gain: Array) -> Ints:
    """Ranks of experts that maximise the gain, with as many experts on each rank."""
    try:
        import pulp
    except ImportError:
        raise InputError(GET_SOLVER, "placement") from None
    experts, ranks = gain.shape
    problem = pulp.LpProblem("placement", pulp.LpMaximize)
    on = [
        [problem.add_variable(f"x_{i}_{r}", 0, 1, pulp.LpInteger) for r in range(ranks)]
        for i in range(experts)
    ]
    problem += pulp.lpSum(float(gain[i, r]) * on[i][r] for i in range(experts) for r in range(ranks))
    for row in on:
        problem += pulp.lpSum(row) == 1
    for rank in range(ranks):
        problem += pulp.lpSum(row[rank] for row in on) == experts // ranks
    problem.solve(pulp.HiGHS(msg=False))
    return np.array([int(np.argmax([variable.value() or 0.0 for variable in row])) for row in on])
