"""Search over a cluster of groups: which group carries which stages or replicas, with how much work.

Every candidate is a scenario with ``plan`` and ``placement``. A group's speed is that of one micro batch on
its own devices. Candidates that fit are ordered by an estimate of the step from these speeds; the first ones
are priced in closed form, and the fastest of these run on the event engine.

Groups carry consecutive stages of one pipeline (Holmes, CodexDive/Holmes: pipelines cross the slow network,
data-parallel groups keep one kind of NIC), or whole replicas with micro batches in proportion to their speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations, product
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError
from core.loading import build
from core.records import record
from hwmodels.mixed import NodeGroup, mixed_cluster
from planner.constraints import Constraints
from planner.space import divisors
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.models import Model
from simulator.placement import MixedSetting
from simulator.plan import Plan, Plans
from simulator.scenario import MixedScenario, make_mixed
from simulator.setting import Setting
from simulator.training import predict
from simulator.training.memory import memory
from simulator.training.mixed import MixedStep, predict_mixed, simulate_mixed

MICRO_BATCHES = 1, 2, 4, 8
RECOMPUTES = "none", "selective", "full"
MOST_EXPERT_RANKS = 64
MOST_STAGES = 64
"""Longest pipeline tried."""
REPEATED = 32
"""Micro batches over which the speed of a group spreads what happens once a step."""
NEIGHBOURS = 2
"""Layers, or micro batches, by which shares of work may differ from those in proportion to speed."""
SHARES = 2
"""Shares of work tried of each arrangement."""
FITTING = 10
"""Fitting candidates after which pricing stops."""
MOST_PRICED = 80
"""Candidates priced at most."""
ON_ENGINE = 3
"""Fastest candidates that the event engine runs."""


@record()
class MixedCandidate:
    """A plan and its placement, and an estimate of its step by the speeds of groups alone, s."""

    plan: Mapping[str, Any]
    placement: Mapping[str, Any]
    estimate: float


@record()
class MixedPlan:
    """A priced candidate: its scenario, its step, and that of the engine where it ran."""

    data: Mapping[str, Any]
    scenario: MixedScenario
    step: MixedStep
    engine: MixedStep | None = None

    @property
    def seconds(self) -> float:
        """The engine's step where it ran, else that of the closed form."""
        return self.step.seconds if self.engine is None else self.engine.seconds

    @property
    def fits(self) -> bool:
        """Whether every group's devices hold their part."""
        return all(group.fits for group in self.step.groups)


@record()
class MixedSearch:
    """The fitting plans, fastest first, and how many candidates there were and were priced."""

    plans: tuple[MixedPlan, ...]
    candidates: int
    priced: int


def search_mixed(
    question: Mapping[str, Any],
    where: str,
    folder: Path,
    top: int,
    constraints: Constraints | None = None,
    progress: Callable[[float], None] | None = None,
) -> MixedSearch:
    """Rank plans of a question on a cluster of groups.

    Args:
        question: the keys of a scenario; ``plan`` and ``placement`` are replaced.
        where: its name in errors.
        folder: base of relative paths.
        top: plans to keep.
        constraints: values and limits of plan fields.
        progress: called with the finished share.

    Raises:
        InputError: a wrong key, or no arrangement of the groups has a valid shape.
    """
    base = {key: value for key, value in question.items() if key not in ("plan", "placement", "search")}
    mixed = _unplaced(base, where, folder)
    limits = constraints or Constraints()
    every = [
        replace(each, plan={**each.plan, **limits.fixed})
        for each in _candidates(mixed)
        if _allowed(each, limits)
    ]
    if not every:
        told = ", ".join(f"{name}={value}" for name, value in limits.fixed.items())
        fixed = f" with {told}" if told else ""
        raise InputError(f"no split of stages or replicas over the groups{fixed} has a valid shape", where)
    listed = sorted(_fitting(mixed, every), key=lambda each: each.estimate)
    plans, priced = _priced(base, listed, where, folder, progress)
    ranked = sorted(plans, key=lambda each: each.step.seconds)
    timed = [_on_engine(plan, where) if rank < ON_ENGINE else plan for rank, plan in enumerate(ranked[:top])]
    return MixedSearch(tuple(sorted(timed, key=lambda each: each.seconds)), len(every), priced)


def _allowed(candidate: MixedCandidate, constraints: Constraints) -> bool:
    return all(constraints.allows(name, value) for name, value in candidate.plan.items())


def _priced(
    base: Mapping[str, Any],
    candidates: Sequence[MixedCandidate],
    where: str,
    folder: Path,
    progress: Callable[[float], None] | None,
) -> tuple[list[MixedPlan], int]:
    """Fitting plans in the order of estimates, and the number of candidates priced."""
    fitting: list[MixedPlan] = []
    tried = candidates[:MOST_PRICED]
    for number, candidate in enumerate(tried):
        if len(fitting) == FITTING:
            return fitting, number
        data = {**base, "plan": candidate.plan, "placement": candidate.placement}
        try:
            scenario = make_mixed(data, where, folder)
            if scenario is None:
                raise InputError("a cluster of groups is needed", f"{where}: cluster")
            step = predict_mixed(scenario.setting, scenario.plan, where)
        except InputError:
            continue  # A rule of shapes or of the release removes it.
        plan = MixedPlan(data, scenario, step)
        if plan.fits:
            fitting.append(plan)
        if progress:
            progress(min((number + 1) / len(tried), 1.0))
    return fitting, len(tried)


def _on_engine(plan: MixedPlan, where: str) -> MixedPlan:
    engine = simulate_mixed(plan.scenario.setting, plan.scenario.plan, where)
    return MixedPlan(plan.data, plan.scenario, plan.step, engine)


def _fitting(mixed: MixedSetting, candidates: Sequence[MixedCandidate]) -> list[MixedCandidate]:
    """Candidates whose parts fit the groups' devices."""
    fits = np.ones(len(candidates), dtype=bool)
    plans = [Plan.model_validate({**mixed.framework.defaults, **each.plan}) for each in candidates]
    for group in mixed.cluster.groups:
        parts: dict[int, list[tuple[int, range]]] = {}
        for number, each in enumerate(candidates):
            if part := _part_of(each, group.name, mixed.layers):
                parts.setdefault(part[0], []).append((number, part[1]))
        for layers, placed in parts.items():
            numbers = [number for number, _ in placed]
            own = Plans.of([plans[number] for number in numbers])
            peaks = _peaks(mixed, group, layers, own, [stages for _, stages in placed])
            fits[numbers] &= peaks <= group.cluster.device.memory_bytes
    return [each for each, good in zip(candidates, fits, strict=True) if good]


def _part_of(candidate: MixedCandidate, group: str, layers: int) -> tuple[int, range] | None:
    """Layers of a pipeline whose stages are all like the group's, and its own stages; None without any."""
    stages, placement = candidate.plan["pipeline"], candidate.placement
    if "replicas" in placement:
        return (layers, range(stages)) if group in placement["replicas"] else None
    start = 0
    for name, count in placement["stages"].items():
        if name == group:
            whole = placement["layers"][group] * stages if "layers" in placement else layers
            return whole, range(start, start + count)
        start += count
    return None


def _peaks(
    mixed: MixedSetting, group: NodeGroup, layers: int, plans: Plans, parts: Sequence[range]
) -> np.ndarray:
    """Peak bytes on the group's first and last stage, the larger, shape (plans,)."""
    model = mixed.model
    if layers != model.layers:
        model = build(Model, {**model.model_dump(), "layers": layers}, model.name)
    cluster = group.uniform(int(plans.devices.max()))
    setting = Setting(model, cluster, mixed.training, mixed.framework, allow=mixed.allow)
    stages = Stages.of(setting, plans)
    counts, every = parameters(setting, plans, stages), np.arange(len(plans))
    peaks = np.zeros(len(plans))
    for ends in ([part[0] for part in parts], [part[-1] for part in parts]):
        at = np.array(ends)
        rows = (np.cumsum(stages.lengths, axis=0) <= at).sum(axis=0)
        rows = rows if stages.runs is None else stages.runs[rows, every]
        # The memory of a class is that of its stage with most micro batches in flight: here the group's own.
        index = stages.index.copy()
        index[rows, every] = at
        peaks = np.maximum(
            peaks, memory(setting, plans, replace(stages, index=index), counts).stages[rows, every]
        )
    return peaks


def _candidates(mixed: MixedSetting) -> Iterator[MixedCandidate]:
    """Arrangements of the groups, each with the shares of work in proportion to their speeds."""
    groups, model, training = mixed.cluster.groups, mixed.model, mixed.training
    width = gcd(*(group.cluster.devices_per_node for group in groups), model.heads)
    seconds, experts = _Speeds(mixed), _powers(model.moe.experts) if model.moe else [1]
    for tensor, micro_batch, recompute, expert in product(
        _powers(width), MICRO_BATCHES, RECOMPUTES, [each for each in experts if each <= MOST_EXPERT_RANKS]
    ):
        if training.global_batch % micro_batch:
            continue
        common = {"tensor": tensor, "micro_batch": micro_batch, "recompute": recompute, "expert": expert}
        common["sequence_parallel"] = tensor > 1
        times = {group.name: seconds(group, tensor, micro_batch, recompute) for group in groups}
        for chosen in _subsets(groups):
            yield from _by_stages(mixed, chosen, common, times)
            if len(chosen) > 1:
                yield from _by_replicas(mixed, chosen, common, times)


def _unplaced(base: Mapping[str, Any], where: str, folder: Path) -> MixedSetting:
    """The question's setting, with any valid placement.

    Raises:
        InputError: a wrong key or value.
    """
    cluster = mixed_cluster(base.get("cluster"), f"{where}: cluster", folder)
    if cluster is None:
        raise InputError("a cluster of groups is needed", f"{where}: cluster")
    placement = {"stages": {cluster.groups[0].name: 1}}
    plan = {"tensor": 1, "data": 1, "micro_batch": 1}
    scenario = make_mixed({**base, "plan": plan, "placement": placement}, where, folder)
    if scenario is None:
        raise InputError("a cluster of groups is needed", f"{where}: cluster")
    return scenario.setting


class _Speeds:
    """Seconds of a micro batch of the whole model on one tensor-parallel group of each kind."""

    def __init__(self, mixed: MixedSetting) -> None:
        self.mixed = mixed
        self._known = cache(self._seconds)

    def __call__(self, group: NodeGroup, tensor: int, micro_batch: int, recompute: str) -> float:
        return self._known(group.name, tensor, micro_batch, recompute)

    def _seconds(self, name: str, tensor: int, micro_batch: int, recompute: str) -> float:
        mixed = self.mixed
        group = mixed.cluster.group(name)
        batch = {"global_batch": REPEATED * micro_batch}
        setting = Setting(
            mixed.model,
            group.uniform(tensor),
            mixed.training.model_copy(update=batch),
            mixed.framework,
            allow=mixed.allow,
        )
        plan = Plan(
            tensor=tensor,
            micro_batch=micro_batch,
            recompute=recompute,  # type: ignore[arg-type]
            sequence_parallel=tensor > 1,
        )
        return float(predict(setting, Plans.of(plan)).time[0]) / REPEATED


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


def _proportional(counts: Mapping[str, int], speeds: Mapping[str, float], total: int) -> list[dict[str, int]]:
    """Whole shares with ``sum(counts x shares) = total``, nearest to the speeds: the slowest finishes mixed.

    Args:
        counts: stages, or replicas, of each group.
        speeds: relative speed of each group.
        total: layers, or micro batches, to share.
    """
    names = list(counts)
    whole = sum(counts[name] * speeds[name] for name in names)
    ideal = [total * speeds[name] / whole for name in names]
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


def _powers(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length()) if most % 2**power == 0]


def _common_divisors(counts: Sequence[int]) -> tuple[int, ...]:
    shared = gcd(*counts)
    return divisors(shared, shared)
