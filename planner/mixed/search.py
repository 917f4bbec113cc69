"""The search over a cluster of groups: which group carries which stages or replicas, with how much work.

Every candidate is a scenario with ``plan`` and ``placement``. A group's speed is that of one micro batch on
its own devices. Candidates that fit are ordered by an estimate of the step from these speeds; the first ones
are priced in closed form, and the fastest of these run on the event engine. Those with sharded state, whose
gathers no estimate knows, are priced apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd, inf
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.records import record
from hwmodels.mixed import mixed_cluster
from planner.mixed.candidates import MICRO_BATCHES, MixedCandidate, candidates, shapes
from planner.mixed.fitting import fitting
from planner.mixed.speeds import Speeds, least_seconds
from planner.training.constraints import Constraints
from simulator.placement import MixedSetting
from simulator.scenario import MixedScenario, make_mixed
from simulator.training.mixed import MixedStep, predict_mixed, simulate_mixed

FITTING, MOST_FITTING = 10, 30
"""Fitting candidates priced at least, and at most."""
SLACK = 1.1
"""Estimates over the best step found, beyond which pricing stops."""
MOST_PRICED = 120
"""Candidates priced at most."""
ON_ENGINE = 3
"""Fastest candidates that the event engine runs."""


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
    """The fitting plans, fastest first, and how many candidates there were and were predicted."""

    plans: tuple[MixedPlan, ...]
    candidates: int
    predicted: int
    least_s: float
    """Seconds below which no placement goes: every device busy at its group's best speed."""


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
    limits, speeds = constraints or Constraints(), Speeds(mixed)
    every = [
        replace(each, plan={**each.plan, **limits.fixed})
        for each in candidates(mixed, speeds)
        if each.allowed(limits)
    ]
    if not every:
        fields = ", ".join(f"{name}={value}" for name, value in limits.fixed.items())
        fixed = f" with {fields}" if fields else ""
        valid = f"over the groups{fixed} has a valid shape{_nearest(mixed)}"
        raise InputError(f"no split of stages or replicas {valid}", where)
    listed = sorted(fitting(mixed, every), key=lambda each: each.estimate)
    sharded = [each for each in listed if "micro_batch" in each.placement]
    equal = [each for each in listed if "micro_batch" not in each.placement]
    pricing = _Pricing(base, where, folder, progress)
    pricing.price(equal, FITTING)
    pricing.price(sharded, 0)
    ranked = sorted(pricing.fitting, key=lambda each: each.step.seconds)
    timed = [_on_engine(plan, where) if rank < ON_ENGINE else plan for rank, plan in enumerate(ranked[:top])]
    least = least_seconds(speeds, mixed.cluster.groups, _sizes(mixed, limits), mixed.training.global_batch)
    return MixedSearch(tuple(sorted(timed, key=lambda each: each.seconds)), len(every), pricing.count, least)


def _nearest(mixed: MixedSetting) -> str:
    """The batch that whole replicas of the widest tensor degree could share, if the question's is another."""
    widest = max(tensor for tensor, _, _ in shapes(mixed))
    shared = gcd(*(group.devices // widest for group in mixed.cluster.groups))
    batch = mixed.training.global_batch
    if batch % shared == 0:
        return ""
    near_batch = max(round(batch / shared), 1) * shared
    advice = f"{shared} must divide the global batch ({batch:,}), as {near_batch:,}"
    return f"; shares are equal within a group: {advice}"


def _sizes(mixed: MixedSetting, limits: Constraints) -> list[tuple[int, int, str]]:
    """Tensor ranks, micro batch and recomputation of the plans that may be had."""
    return [
        (tensor, size, recompute)
        for tensor, recompute, _ in shapes(mixed)
        for size in MICRO_BATCHES
        if limits.allows("tensor", tensor)
        and limits.allows("micro_batch", size)
        and limits.allows("recompute", recompute)
    ]


class _Pricing:
    """Closed forms of candidates: those that fit, and how many were priced."""

    def __init__(
        self,
        base: Mapping[str, Any],
        where: str,
        folder: Path,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.base, self.where, self.folder = base, where, folder
        self.progress = progress or (lambda share: None)
        self.fitting: list[MixedPlan] = []
        self.count = 0

    def price(self, listed: Sequence[MixedCandidate], least: int) -> None:
        """Price candidates in their order, until ``least`` fit and the next is unlikely to be the best."""
        before = len(self.fitting)
        for candidate in listed[:MOST_PRICED]:
            best = min((plan.step.seconds for plan in self.fitting), default=inf)
            fitting = len(self.fitting) - before
            if fitting >= least and (candidate.estimate > SLACK * best or fitting >= MOST_FITTING):
                break
            self.count += 1
            if (plan := self._plan(candidate)) and plan.fits:
                self.fitting.append(plan)
            self.progress(min(self.count / (2 * MOST_FITTING), 1.0))

    def _plan(self, candidate: MixedCandidate) -> MixedPlan | None:
        data = {**self.base, "plan": candidate.plan, "placement": candidate.placement}
        try:
            scenario = make_mixed(data, self.where, self.folder)
            if scenario is None:
                raise InputError("a cluster of groups is needed", f"{self.where}: cluster")
            return MixedPlan(data, scenario, predict_mixed(scenario.setting, scenario.plan, self.where))
        except InputError:
            return None  # A rule of shapes or of the release removes it.


def _on_engine(plan: MixedPlan, where: str) -> MixedPlan:
    engine = simulate_mixed(plan.scenario.setting, plan.scenario.plan, where)
    return MixedPlan(plan.data, plan.scenario, plan.step, engine)


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
