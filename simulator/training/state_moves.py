"""Moves of state between the ranks that share it: gathers, reductions, copies, and steps between levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hwmodels.collectives.cost import Cost
from simulator.plan import taken
from simulator.state.levels import level_devices
from simulator.state.wire import WIRE_FORMATS, Wire, codec_bytes
from simulator.training.sharding import LAYOUT_STATE_FIELDS, DistinctStates, Sharding, StateGroups

Build = Callable[..., tuple[Cost, ...]]
"""Costs from a sharding and the arrays of its states."""


def move_state(
    sharding: Sharding,
    dense: np.ndarray,
    experts: np.ndarray,
    gathers: np.ndarray | float = 1.0,
    reductions: np.ndarray | float = 1.0,
) -> tuple[Cost, Cost]:
    """Cost of gathering the parameters and of reducing the gradients of one device once.

    Args:
        sharding: sharding of the plans.
        dense: dense parameters of one device, shape (..., plans).
        experts: expert parameters of one device, shape (..., plans).
        gathers: number of collectives per gathering.
        reductions: number of collectives per reduction.

    Returns:
        Both costs, shape (..., plans).
    """
    gather, reduce = _of_states(sharding, _moves, dense, experts, gathers, reductions)
    return gather, reduce


def move_copy(
    sharding: Sharding, dense: np.ndarray, experts: np.ndarray, gathers: np.ndarray | float, first: Cost
) -> Cost:
    """Cost of gathering the parameters of one device once in a backward pass, shape (..., plans).

    Plans with a further copy of the parameters gather it in the working format; for the others it is
    ``first``, the cost of gathering the first copy.
    """
    from_copy = sharding.copies
    if not from_copy.any():
        return first
    (copied,) = _of_states(sharding, _copies, dense, experts, gathers)
    return copied * from_copy + first * ~from_copy


def move_between_levels(sharding: Sharding, dense: np.ndarray, experts: np.ndarray) -> tuple[Cost, Cost]:
    """Once a step, where classes of state are sharded over different levels, shape (..., plans).

    Returns:
        Gathering of the updated parameters from the optimizer's ranks to those of the parameters' level, and
        reduction of the gradients of their level over the optimizer's ranks.
    """
    if not any(policy.shard for policy in sharding.plans.policies):
        return Cost.none(dense.shape), Cost.none(dense.shape)
    widened, narrowed = _of_states(sharding, _between, dense, experts)
    return widened, narrowed


def sent_state(sharding: Sharding, dense: np.ndarray, experts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that a rank sends to gather the parameters and to reduce the gradients of one device once.

    Shape (..., plans); those of ``Cost.bytes`` in rings over all levels together, without its prices.

    Args:
        sharding: of the plans.
        dense, experts: as in ``move_state``.
    """
    gathered = reduced = np.zeros(dense.shape)
    kinds = [(dense, sharding.dense)]
    if np.any(experts > 0):
        kinds.append((experts, sharding.experts))
    for count, groups in kinds:
        gathered = gathered + count * (1 - 1 / groups.shard)
        apart = (1 - 1 / groups.shard) + 2 * (1 - 1 / groups.replicas) / groups.shard
        together = 2 * (1 - 1 / (groups.shard * groups.replicas))
        reduced = reduced + count * np.where(sharding.scatters, apart, together)
    return gathered * sharding.gather_bytes, reduced * (sharding.setting.trained * sharding.reduce_bytes)


def _of_states(sharding: Sharding, build: Build, *arguments: np.ndarray | float) -> tuple[Cost, ...]:
    """Evaluate costs once for plans of one state, and spread them over the plans.

    Collectives are costly to evaluate, and most plans of a search hold the same state as others: plans with
    equal ``STATE_FIELDS`` and equal arguments are computed once.
    """
    arrays = np.broadcast_arrays(*arguments)
    states = _states(sharding, arrays)
    by_state = [taken(values, states.first) for values in arrays]
    return tuple(cost[states.index] for cost in build(Sharding(sharding.setting, states.plans), *by_state))


def _states(sharding: Sharding, arrays: Sequence[np.ndarray]) -> DistinctStates:
    """Distinct states whose plans have equal values of shape (..., plans)."""

    def decided(states: DistinctStates) -> bool:
        return all(
            np.array_equal(taken(taken(values, states.first), states.index), values) for values in arrays
        )

    if decided(sharding.states):
        return sharding.states
    states = DistinctStates.of(sharding.plans, LAYOUT_STATE_FIELDS)
    if decided(states):
        return states
    # To sort by values is slow.
    rows = (row for values in arrays for row in values.reshape(-1, len(sharding.plans)))
    return DistinctStates.of(sharding.plans, values=rows)


def _stacked(
    groups: tuple[StateGroups, StateGroups], dense: np.ndarray, experts: np.ndarray
) -> tuple[StateGroups, np.ndarray]:
    """Groups and counts with an axis for dense parameters and experts in front."""
    kinds, count = [groups[0]], dense[np.newaxis]
    if np.any(experts > 0):
        kinds, count = list(groups), np.stack([dense, experts])
    return StateGroups.stack(kinds, axes=dense.ndim - 1), count


def _moves(
    sharding: Sharding, dense: np.ndarray, experts: np.ndarray, gathers: np.ndarray, reductions: np.ndarray
) -> tuple[Cost, Cost]:
    over, count = _stacked(sharding.groups("parameters"), dense, experts)
    gradients, optimizer = sharding.groups("gradients"), sharding.groups("optimizer")
    # Ranks that share the optimizer's state add up their gradients once a step (``move_between_levels``).
    inside = [
        replace(gradient, replicas=owner.replicas, replica_stride=owner.replica_stride)
        for gradient, owner in zip(gradients, optimizer, strict=True)
    ]
    reduced, _ = _stacked((inside[0], inside[1]), dense, experts)
    # A stage without experts has no expert collectives, whatever other plans of the batch hold.
    holds = count > 0
    trained = sharding.setting.trained
    # Frozen weights move where parameters are sharded alone: no update changes them.
    gathered = count * np.where(sharding.parameters, sharding.gathered_share, trained)
    gather = (holds * gathers * _gather(sharding, over, gathered / gathers)).sum()
    reduce = (holds * reductions * _reduce(sharding, reduced, count * trained / reductions)).sum()
    return gather, reduce


def _copies(sharding: Sharding, dense: np.ndarray, experts: np.ndarray, gathers: np.ndarray) -> tuple[Cost]:
    over, count = _stacked(sharding.groups("parameters", copy=True), dense, experts)
    size = count / gathers * sharding.setting.framework.gathers.bytes
    cluster = sharding.setting.cluster
    cost = cluster.collective_cost("all_gather", size, over.shard, over.shard_stride)
    return (((count > 0) * gathers * cost).sum(),)


def _between(sharding: Sharding, dense: np.ndarray, experts: np.ndarray) -> tuple[Cost, Cost]:
    """All-gather to the level of the parameters, reduce-scatter from that of the gradients.

    Parameters go by rings of the ranks that hold the same slice, or by one ring of all ranks, each of which
    keeps its slice: the faster one, as rings that share the NICs of a node may be slow.
    """
    outer, count = _stacked(sharding.groups("optimizer"), dense, experts)
    cluster, costs = sharding.setting.cluster, []
    for operation, groups, width in (
        ("all_gather", sharding.groups("parameters"), sharding.setting.framework.gathers.bytes),
        ("reduce_scatter", sharding.groups("gradients"), sharding.setting.choices.reduce_bytes),
    ):
        inner, _ = _stacked(groups, dense, experts)
        ranks = np.maximum(outer.shard // inner.shard, 1)
        size = count * sharding.setting.trained / inner.shard * width
        stride = inner.shard_stride * inner.shard
        cost = cluster.collective_cost(operation, size, ranks, stride)
        if operation == "all_gather":
            bytes_gathered = count * sharding.setting.trained * width
            around = cluster.collective_cost(operation, bytes_gathered, outer.shard, outer.shard_stride)
            quicker = around.seconds < cost.seconds
            cost = around * quicker + cost * ~quicker
        costs.append(((count > 0) * cost).sum())
    return costs[0], costs[1]


def _gather(sharding: Sharding, groups: StateGroups, count: np.ndarray) -> Cost:
    """Gather ``count`` sharded parameters once."""
    size, cluster = count * sharding.gather_bytes, sharding.setting.cluster
    if sharding.setting.framework.gathers.by_broadcast:
        part = size / groups.shard
        return groups.shard * cluster.collective_cost("broadcast", part, groups.shard, groups.shard_stride)
    cost = cluster.collective_cost("all_gather", size, groups.shard, groups.shard_stride)
    names = [policy.wire.gather if policy.wire else None for policy in sharding.plans.policies]
    if not any(names):
        return cost
    # A rank encodes its shard and decodes all of them.
    element_bytes = sum(
        codec_bytes(WIRE_FORMATS[name], 1 / groups.shard, np.ones(groups.shard.shape))
        * (sharding.plans.policy == n)
        for n, name in enumerate(names)
        if name
    )
    return _with_codec(sharding, cost, count * element_bytes)


def _reduce(sharding: Sharding, groups: StateGroups, count: np.ndarray) -> Cost:
    """Reduce ``count`` gradients once over the ranks that share them.

    Where the framework all-reduces, one all-reduce spans all copies of a shard group.
    """
    cluster, size = sharding.setting.cluster, count * sharding.reduce_bytes
    hops = np.array([bool(p.wire and _in_hops(p.wire)) for p in sharding.plans.policies])[
        sharding.plans.policy
    ]
    total = Cost.none()
    for operation, rows, ranks in (
        ("reduce_scatter", sharding.scatters & ~hops, groups.shard),
        ("all_reduce", ~sharding.scatters & ~hops, groups.shard * groups.replicas),
    ):
        if rows.any():
            cost = cluster.collective_cost(operation, size, ranks, groups.shard_stride)
            total = total + cost * rows
    replicated = sharding.scatters & (groups.replicas > 1)
    if replicated.any():
        part = size / groups.shard
        outer = cluster.collective_cost("all_reduce", part, groups.replicas, groups.replica_stride)
        total = total + outer * replicated
    for number, policy in enumerate(sharding.plans.policies):
        rows = hops & (sharding.plans.policy == number)
        if rows.any() and policy.wire is not None:
            total = total + _hops(sharding, groups, count, policy.wire) * rows
    return total


def _in_hops(wire: Wire) -> bool:
    """Whether a reduction is not one reduce-scatter: it has two hops, or a format that rings cannot add."""
    return wire.reduce_hops > 1 or (wire.reduce is not None and WIRE_FORMATS[wire.reduce].coded)


def _hops(sharding: Sharding, groups: StateGroups, count: np.ndarray, wire: Wire) -> Cost:
    """A reduce-scatter in hops: inside nodes, then between them; of coded gradients by all-to-alls.

    Each hop of a coded format decodes what it received, adds, and encodes the sums for the next (Wang et al.
    2023, ZeRO++, section 3.3).
    """
    cluster, form = sharding.setting.cluster, WIRE_FORMATS[wire.reduce] if wire.reduce else None
    width = form.bytes if form else float(sharding.setting.choices.reduce_bytes)
    coded = form is not None and form.coded
    operation = "all_to_all" if coded else "reduce_scatter"
    inner_ranks = np.ones_like(groups.shard)
    if wire.reduce_hops > 1:
        inside = np.maximum(level_devices(cluster, "node") // groups.shard_stride, 1)
        inner_ranks = np.gcd(groups.shard, inside)
    outer_ranks = groups.shard // inner_ranks
    first = cluster.collective_cost(operation, count * width, inner_ranks, groups.shard_stride)
    second = cluster.collective_cost(
        operation, count * width / inner_ranks, outer_ranks, groups.shard_stride * inner_ranks
    )
    if form is None or not coded:
        return first + second
    # First hop: encode and decode all; second: encode and decode a node's sums.
    element_bytes = codec_bytes(form, 1.0, 1.0) * np.where(inner_ranks > 1, 1.0, 0.0)
    element_bytes = element_bytes + codec_bytes(form, 1.0, 1.0) / inner_ranks * np.where(
        outer_ranks > 1, 1.0, 0.0
    )
    return _with_codec(sharding, first + second, count * element_bytes)


def _with_codec(sharding: Sharding, cost: Cost, coded_bytes: np.ndarray) -> Cost:
    """A cost with the kernels that encode and decode, which move so many bytes."""
    kernels = sharding.setting.kernels.memory_bound(coded_bytes)
    return replace(cost, seconds=cost.seconds + np.where(coded_bytes > 0, kernels, 0.0))
