"""Search of post-training: roles on shared devices or apart, devices by role, and a layout of either side.

Layouts of the trainer come from the training search on its devices. Tensor degrees of the rollout engine are
tried on all devices first; the fastest ones go with every split. The closed form of rollouts orders all
candidates, the event engine times those that are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.errors import InfeasibleError, MeshwrightError
from core.records import record
from hwmodels.device import Device
from planner.training.constraints import Constraints
from planner.training.search import search
from simulator.offload import offload_systems
from simulator.plan import Plan
from simulator.rl.frameworks import DEGREES
from simulator.rl.memory import lacking, least_beside, peak_bytes
from simulator.rl.scenario import make_rl
from simulator.rl.setting import RlSetting, trainer_setting, training_workload
from simulator.rl.step import RlStep, predict_rl
from simulator.setting import Setting
from simulator.uncertainty import default_headroom

FIRST_DEGREES = 0, 2, 4, 8, 16
"""Tensor degrees of the rollout engine that are tried until the model fits; 0: as stated, or the default."""
LAYOUTS = 16
"""Plans of the trainer that are tried, fastest first, until one allows the rows of a step."""
OFFLOADED = 256
"""The same with state on the host: Megatron's trainers keep more of it on devices than others."""
TENSOR_DEGREES = 2
"""Tensor degrees of the rollout engine that go with every split."""
MEMORY_SHARES = 0.5, 0.6, 0.7, 0.8, 0.9
"""Shares of a device's memory for the rollout engine that are tried on the first plan."""
MOST_FREE = 0.9
"""Most of a device's memory that the trainer's search leaves free."""
HYBRID = offload_systems.get("megatron-hybrid")
"""Who updates an optimizer on the host, where a system's trainer is Megatron's."""
EVEN = 0.01
"""A share of memory within which plans are equal: the smaller one stays."""
EIGHTHS = 1, 2, 3, 4, 5, 6
"""Shares of the devices for the trainer, in eighths, where roles are apart."""


@record()
class RlPlan:
    """A candidate: its scenario as a mapping, and its step."""

    data: Mapping[str, Any]
    step: RlStep

    @property
    def answers_per_s(self) -> float:
        """Answers that the job trains on in a second."""
        return self.step.setting.workload.answers / self.step.timing.seconds


@record()
class RlSearch:
    """Ranked plans, most answers a second first, and the reasons why others could not run.

    ``more`` is what a node more for either role adds to the first plan's answers, as a share, both by the
    closed form of rollouts; on shared devices the role is ``all``. Roles without a valid layout on one node
    more are left out. ``fp8`` is what weights of 8 bits in the rollout engine add, where the scenario states
    no format: it is not ranked, for answers then come from another policy than the trained one.
    """

    plans: tuple[RlPlan, ...]
    refused: Mapping[str, str]
    more: Mapping[str, float]


def search_rl(
    question: Mapping[str, Any],
    where: str,
    folder: Path,
    staleness: float,
    top: int,
    progress: Callable[[float], None] | None = None,
) -> RlSearch:
    """Rank plans of a question of post-training.

    Args:
        question: the keys of a scenario; its ``schedule`` and layouts of both roles are replaced.
        where: its name in errors.
        folder: base of relative paths.
        staleness: steps by which the weights of an answer may be older than the newest; 0: on policy.
        top: plans to keep.
        progress: called with the finished share.

    Raises:
        InputError: a wrong key or value.
        InfeasibleError: no layout of the rollout engine fits.
    """
    space = _Space(question, where, folder)
    plans, refused = [], {}
    schedules = list(_schedules(space, staleness))
    for number, schedule in enumerate(schedules):
        for tensor in space.tensors:
            try:
                plans.append(space.plan(schedule, tensor, space.gpus))
            except MeshwrightError as error:
                refused.setdefault(f"{_named(schedule)}, rollouts TP{tensor}", str(error))
        if progress:
            progress((number + 1) / len(schedules))
    if not plans:
        raise InfeasibleError(f"no plan fits; {next(iter(refused.values()))}")
    plans.extend(space.memory_shares(max(plans, key=lambda plan: plan.answers_per_s)))
    best = sorted(plans, key=lambda plan: -plan.answers_per_s)[:top]
    ranked = sorted((space.timed(plan) for plan in best), key=lambda plan: -plan.answers_per_s)
    return RlSearch(tuple(ranked), refused, space.gains(ranked[0]))


class _Space:
    """Layouts of both roles on some devices; the trainer's are searched once for each number of them."""

    def __init__(self, question: Mapping[str, Any], where: str, folder: Path) -> None:
        self.question, self.where, self.folder = question, where, folder
        stated = question.get("roles")
        self.roles = dict(stated) if isinstance(stated, Mapping) else {}
        self.first = self._first()
        self.gpus = self.first.cluster.devices
        self.node = self.first.cluster.devices_per_node
        self._layouts: dict[tuple[int, bool], list[Mapping[str, Any]]] = {}
        self.tensors = self._fastest()

    def _first(self) -> RlSetting:
        """The question on shared devices, with the narrowest rollout engine that holds the model.

        Raises:
            InputError: a wrong key or value.
            InfeasibleError: no engine within the usual degrees does.
        """
        problems = []
        for tensor in FIRST_DEGREES:
            on_all = {"schedule": {"kind": "synchronous"}, "roles": self._roles({}, tensor)}
            try:
                return make_rl({**self.question, **on_all}, self.where, self.folder)
            except InfeasibleError as error:
                problems.append(error)
        raise problems[0]

    def _roles(self, plan: Mapping[str, Any], tensor: int) -> dict[str, Any]:
        train, generate = (dict(self.roles.get(role) or {}) for role in ("train", "generate"))
        train["plan"] = {**plan}
        if tensor:
            generate["tensor"] = tensor
        return {**self.roles, "train": train, "generate": generate}

    def _fastest(self) -> list[int]:
        """Tensor degrees of the rollout engine whose rollouts on all devices end first."""
        seconds, problems = {}, []
        for power in range(self.node.bit_length()):
            try:
                seconds[2**power] = self.plan(
                    {"kind": "synchronous"}, 2**power, self.gpus
                ).step.phases.generation
            except MeshwrightError as error:
                problems.append(error)
        if not seconds:
            raise problems[-1]
        return sorted(seconds, key=lambda tensor: seconds[tensor])[:TENSOR_DEGREES]

    def layouts(self, devices: int, shared: bool) -> list[Mapping[str, Any]]:
        """The trainer's fastest plan on some devices, and one with its optimizer on the host.

        The latter is tried where no other one fits, or where state would leave shared devices for rollouts.

        Raises:
            InfeasibleError: none fits.
        """
        if (devices, shared) not in self._layouts:
            first = self.first
            rows = training_workload(first.workload, first.trainer.training.packing or "pack", devices, 0)
            # Full rows: the walk of unequal micro batches would take most of the search.
            setting = replace(first.trainer, training=rows.longest, cluster=first.cluster.resized(devices))
            self._layouts[devices, shared] = self._searched(setting, devices, shared)
        return self._layouts[devices, shared]

    def _searched(self, setting: Setting, devices: int, shared: bool) -> list[Mapping[str, Any]]:
        """The first plans that fit and that a step's rows allow: of all, not interleaved, offloaded.

        Raises:
            InfeasibleError: none does.
        """
        host = setting.cluster.node is not None and setting.cluster.node.host_bytes is not None
        system = self.first.framework
        fixed = {name: 1 for name in DEGREES if name not in system.degrees}
        if min(system.zero) > 1:
            fixed["zero"] = max(system.zero)
        highest = {"zero": max(system.zero)}
        offered, in_order = (
            Constraints.of({**fixed, **more}, highest) for more in ({}, {"virtual_pipeline": 1})
        )
        there = setting.cluster.device.memory_bytes
        beside = least_beside(self.first, setting, shared) / there
        free = min(default_headroom(setting) + beside, MOST_FREE)
        rooms = ((1 - free) * there, (1 - beside) * there)
        layouts, problems = [], []
        offloads = shared and self.first.offload
        attempts = [(offered, False), (in_order, False), *([(in_order, True)] if host else [])]
        for constraints, offload in attempts:
            if layouts and not (offload and offloads):
                continue
            ranking = search(
                *(setting, devices, constraints, "time", OFFLOADED if offload else LAYOUTS),
                headroom=free,
                alternatives=False,
                offload=offload,
            )
            try:
                layouts.append(self._valid(setting, [*ranking.plans], rooms))
            except InfeasibleError as error:
                problems.append(error)
        if not layouts:
            raise problems[-1]
        return layouts

    def _valid(self, setting: Setting, plans: list[Plan], rooms: tuple[float, float]) -> Mapping[str, Any]:
        """The first plan that the rows of a step allow: its replicas round them otherwise than the search.

        State on the host lies there as the system has it; then the first plan that leaves the headroom, or
        one that fits without.

        Args:
            setting: the trainer's, over full rows.
            plans: fastest first.
            rooms: bytes of a device that the trainer may fill, with the headroom and without.

        Raises:
            InfeasibleError: none does.
        """
        role = setting.model, setting.cluster, setting.framework, self.first.workload
        packing, problem = setting.training.packing or "pack", "no layout fits"
        full = None
        for plan in plans:
            stated = plan.model_dump(mode="json", exclude_defaults=True)
            if any(name not in self.first.framework.host_state for name in stated.get("place", {})):
                problem = f"{self.first.framework.title} keeps such state on devices"
                continue
            if "place" in stated and self.first.framework.host_state == ("optimizer",):
                stated["update"] = HYBRID.update.model_dump(mode="json", exclude_defaults=True)
            try:
                laid = trainer_setting(role, stated, packing, 0, "roles.train.plan")
            except MeshwrightError as error:
                problem = str(error)
                continue
            if "place" not in stated or (peak := peak_bytes(*laid)) <= rooms[0]:
                return stated
            full = full or (stated if peak <= rooms[1] else None)
            problem = "an optimizer on the host leaves 32-bit weights on devices"
        if full:
            return full
        devices = setting.cluster.devices
        counted = f"{devices} device" + "s" * (devices > 1)
        raise InfeasibleError(f"no plan of the trainer on {counted}: {problem}")

    def plan(self, schedule: Mapping[str, Any], tensor: int, gpus: int) -> RlPlan:
        """One candidate.

        Raises:
            MeshwrightError: a role does not fit, or breaks a rule.
        """
        split = schedule.get("split")
        plans = []
        for layout in self.layouts(split["train"] if split else gpus, not split):
            roles = self._roles(layout, tensor)
            data = {**self.question, "gpus": gpus, "schedule": schedule, "roles": roles}
            plans.append(RlPlan(data, predict_rl(make_rl(data, self.where, self.folder), engine=False)))
        fitting = [plan for plan in plans if plan.step.memory.fits]
        if not fitting:
            raise InfeasibleError(lacking(plans[0].step.memory))
        return max(fitting, key=lambda plan: plan.answers_per_s)

    def timed(self, plan: RlPlan) -> RlPlan:
        """The same candidate with its rollouts on the event engine."""
        return RlPlan(plan.data, predict_rl(make_rl(plan.data, self.where, self.folder)))

    def memory_shares(self, best: RlPlan) -> list[RlPlan]:
        """A plan with the smallest share of KV memory that is as fast as any, if another one is faster."""
        generate = dict(best.data["roles"]["generate"])
        options = generate.get("options") or {}
        if "memory_share" in options:
            return []
        tried = []
        for share in MEMORY_SHARES:
            try:
                tried.append(self._with(best, {"options": {**options, "memory_share": share}}))
            except MeshwrightError:
                continue
        if not tried:
            return []
        tried = [plan for plan in tried if plan.step.memory.fits] or [best]
        fastest = max(plan.answers_per_s for plan in tried)
        smallest = next(plan for plan in tried if plan.answers_per_s >= fastest * (1 - EVEN))
        return [smallest] if smallest.answers_per_s > best.answers_per_s * (1 + EVEN) else []

    def gains(self, plan: RlPlan) -> dict[str, float]:
        """Shares of answers that a node more of each role, or 8-bit weights of rollouts, add to a plan.

        The closed form of rollouts times both sides: drawn bursts of the event engine differ by more.
        """
        base = self._with(plan, {}).answers_per_s
        wider = {**self._one_node_more(plan), **self._in_eight_bits(plan)}
        return {name: each.answers_per_s / base - 1.0 for name, each in wider.items()}

    def _in_eight_bits(self, plan: RlPlan) -> dict[str, RlPlan]:
        device: Device = self.first.cluster.device
        if "weights" in plan.data["roles"]["generate"] or "fp8" not in device.peak_flops:
            return {}
        try:
            return {"fp8": self._with(plan, {"weights": "fp8"})}
        except MeshwrightError:
            return {}

    def _with(self, plan: RlPlan, changed: Mapping[str, Any]) -> RlPlan:
        """A plan with other keys of the rollout engine.

        Raises:
            MeshwrightError: the engine does not fit.
        """
        generate = {**plan.data["roles"]["generate"], **changed}
        data = {**plan.data, "roles": {**plan.data["roles"], "generate": generate}}
        return RlPlan(data, predict_rl(make_rl(data, self.where, self.folder), engine=False))

    def _one_node_more(self, plan: RlPlan) -> dict[str, RlPlan]:
        """A plan with a node more of each role, where that has a valid layout."""
        schedule = plan.data["schedule"]
        tensor, split = plan.step.setting.rollouts.pools[0].pool.tensor, schedule.get("split")
        wider = {"all": schedule}
        if split is not None:
            wider = {
                role: {**schedule, "split": {**split, role: split[role] + self.node}}
                for role in ("train", "generate")
            }
        plans = {}
        for role, schedule_of_role in wider.items():
            try:
                plans[role] = self.plan(schedule_of_role, tensor, self.gpus + self.node)
            except MeshwrightError:
                continue
        return plans


def _schedules(space: _Space, staleness: float) -> Iterator[dict[str, Any]]:
    """Phases in turn on shared devices; where answers may be old, roles apart on whole nodes."""
    yield {"kind": "synchronous"}
    if staleness <= 0:
        return
    kind = {"kind": "one-step-off"} if staleness == 1 else {"kind": "asynchronous", "staleness": staleness}
    unit = space.node if space.gpus > space.node else 1
    shares = {max(round(space.gpus * eighths / 8 / unit), 1) * unit for eighths in EIGHTHS}
    for train in sorted(share for share in shares if share < space.gpus):
        yield {**kind, "split": {"train": train, "generate": space.gpus - train}}


def _named(schedule: Mapping[str, Any]) -> str:
    split = schedule.get("split")
    return f"{schedule['kind']}" + (f" {split['train']}+{split['generate']}" if split else "")
