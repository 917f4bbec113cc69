"""Arrangements of a mixed cluster's groups, with shares of work in proportion to the groups' speeds.

Groups carry consecutive stages of one pipeline (Holmes, CodexDive/Holmes: pipelines cross the slow network,
data-parallel groups keep one kind of NIC), or whole replicas with micro batches in proportion to their speed.
Replicas that shard all of their state have equally many micro batches, of sizes in proportion (Cephalo,
arXiv:2411.01075).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product
from math import gcd
from typing import Any

from core.records import record
from hwmodels.mixed import NodeGroup
from planner.mixed.speeds import RECOMPUTES, Speeds
from planner.training.constraints import Constraints
from planner.training.space import divisors
from simulator.placement import MixedSetting

MICRO_BATCHES = 1, 2, 4, 8
MOST_EXPERT_RANKS = 64
MOST_STAGES = 64
"""Longest pipeline tried."""
NEIGHBOURS = 2
"""Layers, or micro batches, by which shares of work may differ from those in proportion to speed."""
SHARES = 2
"""Shares of work tried of each arrangement."""


@record()
class MixedCandidate:
    """A plan and its placement, and an estimate of its step by the speeds of groups alone, s."""

    plan: Mapping[str, Any]
    placement: Mapping[str, Any]
    estimate: float

    def allowed(self, constraints: Constraints) -> bool:
        """Whether every field of the plan may have its value."""
        sizes = self.placement.get("micro_batch", {})
        fields = [*self.plan.items(), *(("micro_batch", size) for size in sizes.values())]
        return all(constraints.allows(name, value) for name, value in fields)


def candidates(mixed: MixedSetting, speeds: Speeds) -> Iterator[MixedCandidate]:
    """Every arrangement of the groups as stages, as replicas, and as replicas with sharded state."""
    groups, training = mixed.cluster.groups, mixed.training
    for (tensor, recompute, expert), micro_batch in product(shapes(mixed), MICRO_BATCHES):
        if training.global_batch % micro_batch:
            continue
        common = _common(tensor, micro_batch, recompute, expert)
        times = {group.name: speeds(group, tensor, micro_batch, recompute) for group in groups}
        for subset in _subsets(groups):
            yield from _by_stages(mixed, subset, common, times)
            if len(subset) > 1:
                yield from _by_replicas(mixed, subset, common, times)
    for tensor, recompute, expert in shapes(mixed):
        for subset in _subsets(groups):
            yield from _by_sizes(mixed, subset, _common(tensor, 1, recompute, expert), speeds)


def shapes(mixed: MixedSetting) -> list[tuple[int, str, int]]:
    """Tensor ranks, recomputation and expert ranks that candidates have."""
    groups, model = mixed.cluster.groups, mixed.model
    width = gcd(*(group.cluster.devices_per_node for group in groups), model.heads)
    experts = _powers(model.moe.experts) if model.moe else [1]
    return list(product(_powers(width), RECOMPUTES, [each for each in experts if each <= MOST_EXPERT_RANKS]))


def _common(tensor: int, micro_batch: int, recompute: str, expert: int) -> dict[str, Any]:
    return {
        "tensor": tensor,
        "micro_batch": micro_batch,
        "recompute": recompute,
        "expert": expert,
        "sequence_parallel": tensor > 1,
    }


def _by_stages(
    mixed: MixedSetting, groups: Sequence[NodeGroup], common: Mapping[str, Any], times: Mapping[str, float]
) -> Iterator[MixedCandidate]:
    """One pipeline over the groups: each order, each number of replicas that divides all of them."""
    tensor, micro_batch = common["tensor"], common["micro_batch"]
    for replicas in _common_divisors([group.devices // tensor for group in groups]):
        counts = {group.name: group.devices // (tensor * replicas) for group in groups}
        stages = sum(counts.values())
        rounds, left = divmod(mixed.training.global_batch, replicas * micro_batch)
        if left or not rounds or stages > min(mixed.layers, MOST_STAGES):
            continue
        if replicas * tensor % common["expert"]:
            continue
        plan = {**common, "pipeline": stages, "data": replicas, "zero": 1}
        for layers in _proportional(counts, {name: 1 / times[name] for name in counts}, mixed.layers):
            slowest = max(layers[name] * times[name] for name in counts) / mixed.layers
            filled = sum(counts[name] * layers[name] * times[name] for name in counts) / mixed.layers
            for order in permutations(counts):
                placement = {"stages": {name: counts[name] for name in order}}
                if len(order) > 1:
                    placement["layers"] = {name: layers[name] for name in order}
                yield MixedCandidate(plan, placement, (rounds - 1) * slowest + filled)


def _by_replicas(
    mixed: MixedSetting, groups: Sequence[NodeGroup], common: Mapping[str, Any], times: Mapping[str, float]
) -> Iterator[MixedCandidate]:
    """Whole replicas on each group, with micro batches in proportion to its speed."""
    tensor, micro_batch = common["tensor"], common["micro_batch"]
    for pipeline in _common_divisors([group.devices // tensor for group in groups]):
        if mixed.layers % pipeline or pipeline > MOST_STAGES:
            continue
        counts = {group.name: group.devices // (tensor * pipeline) for group in groups}
        if any(replicas * tensor % common["expert"] for replicas in counts.values()):
            continue
        rounds = mixed.training.global_batch // micro_batch
        plan = {**common, "pipeline": pipeline, "data": sum(counts.values()), "zero": 1}
        for batches in _proportional(counts, {name: 1 / times[name] for name in counts}, rounds):
            waves = {name: batches[name] + pipeline - 1 for name in counts}
            estimate = max(waves[name] * times[name] / pipeline for name in counts)
            placement = {"replicas": counts, "micro_batches": batches}
            yield MixedCandidate(plan, placement, estimate)


def _by_sizes(
    mixed: MixedSetting, groups: Sequence[NodeGroup], common: Mapping[str, Any], speeds: Speeds
) -> Iterator[MixedCandidate]:
    """Replicas with sharded state, and micro batches of sizes in proportion to their speed."""
    tensor, batch = common["tensor"], mixed.training.global_batch
    counts = {group.name: group.devices // tensor for group in groups}
    if any(replicas * tensor % common["expert"] for replicas in counts.values()):
        return

    def seconds(group: NodeGroup, size: int) -> float:
        return speeds(group, tensor, size, common["recompute"])

    rates = {group.name: 1 / seconds(group, 1) for group in groups}
    plan = {**common, "pipeline": 1, "data": sum(counts.values()), "zero": 3}
    for rounds in divisors(batch, batch):
        for sizes in _proportional(counts, rates, batch // rounds):
            if max(sizes.values()) > max(MICRO_BATCHES):
                continue
            estimate = rounds * max(seconds(group, sizes[group.name]) for group in groups)
            placement = {"replicas": counts, "micro_batch": sizes}
            yield MixedCandidate(plan | {"micro_batch": min(sizes.values())}, placement, estimate)


def _proportional(counts: Mapping[str, int], speeds: Mapping[str, float], total: int) -> list[dict[str, int]]:
    """Whole shares with ``sum(counts x shares) = total``, nearest to the speeds: the slowest finishes first.

    Args:
        counts: stages, or replicas, of each group.
        speeds: relative speed of each group.
        total: layers, micro batches or sequences to share.
    """
    names = list(counts)
    speed = sum(counts[name] * speeds[name] for name in names)
    ideal = [total * speeds[name] / speed for name in names]
    around = [range(max(int(share) - NEIGHBOURS, 1), int(share) + NEIGHBOURS + 2) for share in ideal]
    splits = set()
    for rest in range(len(names)):
        others = [number for number in range(len(names)) if number != rest]
        for shares in product(*(around[number] for number in others)):
            left = total - sum(
                counts[names[number]] * share for number, share in zip(others, shares, strict=True)
            )
            last, over = divmod(left, counts[names[rest]])
            if not over and last > 0:
                splits.add((*shares[:rest], last, *shares[rest:]))

    def slowest(shares: tuple[int, ...]) -> float:
        return max(share / speeds[name] for name, share in zip(names, shares, strict=True))

    ranked = sorted(splits, key=lambda shares: (slowest(shares), shares))
    return [dict(zip(names, shares, strict=True)) for shares in ranked[:SHARES]]


def _subsets(groups: Sequence[NodeGroup]) -> Iterator[tuple[NodeGroup, ...]]:
    """All groups first, then fewer: a slow group may only hold the others up."""
    masks = range(2 ** len(groups) - 1, 0, -1)
    for mask in sorted(masks, key=lambda each: -each.bit_count()):
        yield tuple(group for number, group in enumerate(groups) if mask >> number & 1)


def _powers(limit: int) -> list[int]:
    return [2**power for power in range(limit.bit_length()) if limit % 2**power == 0]


def _common_divisors(counts: Sequence[int]) -> tuple[int, ...]:
    shared = gcd(*counts)
    return divisors(shared, shared)
