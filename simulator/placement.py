"""Placement of pipeline stages, or of data-parallel replicas, on the groups of a mixed cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from core.errors import InputError
from core.loading import Strict, build
from core.quantities import Count, Positive
from hwmodels.mixed import MixedCluster, NodeGroup
from simulator.frameworks import Framework
from simulator.levers import Choices
from simulator.models import Model
from simulator.plan import Plan
from simulator.setting import Setting
from simulator.state.uneven import EVEN, StateShare
from simulator.workload import Training

MOST_STAGES = 4096
MOST_WEIGHT = 1024


def _in_order(value: object) -> object:
    """Expand counts of consecutive stages to one group name per stage."""
    if isinstance(value, Mapping) and all(isinstance(count, int) and count > 0 for count in value.values()):
        if (stages := sum(value.values())) > MOST_STAGES:
            raise ValueError(f"must be at most {MOST_STAGES:,} stages, found {stages:,}")
        return [name for name, count in value.items() for _ in range(count)]
    return value


class Placement(Strict):
    """The groups of a plan's stages, or of its replicas."""

    stages: Annotated[list[str], BeforeValidator(_in_order)] = Field(
        default_factory=list,
        description="group of each pipeline stage, first stage first; or stages of each group, in order",
    )
    replicas: dict[str, Count] = Field(
        default_factory=dict, description="data-parallel replicas of each group"
    )
    layers: dict[str, Count] = Field(
        default_factory=dict,
        description="layers of each stage that a group carries; without, stages have equal shares",
    )
    micro_batches: dict[str, Count] = Field(
        default_factory=dict,
        description="micro batches of a step for each replica of a group, where groups differ in them",
    )

    micro_batch: dict[str, Count] = Field(
        default_factory=dict,
        description="sequences of a micro batch on a replica of a group, where groups differ in them",
    )
    state: dict[str, Annotated[Positive, Field(le=MOST_WEIGHT)]] = Field(
        default_factory=dict,
        description="weight of a replica of a group in the state that replicas shard: with 1 and 3, the "
        "second holds three times as much",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Placement:
        if bool(self.stages) == bool(self.replicas):
            raise ValueError("give either stages or replicas")
        for name in ("micro_batch", "state"):
            if (by_group := getattr(self, name)) and {*by_group} != {*self.replicas}:
                raise ValueError(f"{name}: needs the groups of replicas")
        if self.layers and {*self.layers} != {*self.stages}:
            raise ValueError("layers: needs the groups of stages")
        if self.micro_batches and {*self.micro_batches} != {*self.replicas}:
            raise ValueError("micro_batches: needs the groups of replicas")
        return self


@dataclass(frozen=True)
class Share:
    """The part of a plan placed on one group."""

    group: NodeGroup
    stages: tuple[int, ...]
    replicas: int
    micro_batches: int
    """Micro batches of one replica in a step."""
    micro_batch: int
    """Sequences of one of them."""
    devices: int
    layers: float
    """Layers of a stage of the group; the mean where stages differ."""
    state: StateShare = EVEN
    """What a device holds of the state that replicas shard."""

    def plan(self, plan: Plan) -> Plan:
        """The plan as the group runs it."""
        if plan.micro_batch == self.micro_batch:
            return plan
        return plan.model_copy(update={"micro_batch": self.micro_batch})


def shares(setting: MixedSetting, plan: Plan, where: str) -> list[Share]:
    """Return the part of every group, in the order of the cluster's groups.

    Args:
        setting: the groups, the batch and the placement.
        plan: the degrees.
        where: file and key path to name in errors.

    Raises:
        InputError: an unknown group, a count that does not fit the plan, or a group with too few devices.
    """
    placement = setting.placement
    for name in (*placement.stages, *placement.replicas):
        setting.cluster.group(name, where)
    find = _by_stage if placement.stages else _by_replica
    parts = [share for group in setting.cluster.groups if (share := find(group, setting, plan))]
    check = _check_stages if placement.stages else _check_replicas
    check(setting, plan, parts, where)
    for share in parts:
        if share.devices > share.group.devices:
            raise InputError(
                f"group {share.group.name!r} has {share.group.devices} devices; its part of the plan needs"
                f" {share.devices}",
                where,
            )
    return parts


def _by_stage(group: NodeGroup, setting: MixedSetting, plan: Plan) -> Share | None:
    placement = setting.placement
    stages = tuple(stage for stage, name in enumerate(placement.stages) if name == group.name)
    if not stages:
        return None
    even = setting.layers / plan.pipeline
    return Share(
        group,
        stages,
        replicas=plan.data,
        micro_batches=setting.training.micro_batches(plan.data, plan.micro_batch),
        micro_batch=plan.micro_batch,
        devices=len(stages) * plan.devices // plan.pipeline,
        layers=placement.layers.get(group.name, even),
    )


def _by_replica(group: NodeGroup, setting: MixedSetting, plan: Plan) -> Share | None:
    replicas = setting.placement.replicas.get(group.name, 0)
    if not replicas:
        return None
    placement = setting.placement
    micro_batches = placement.micro_batches.get(group.name)
    if micro_batches is None:
        batch = sum(
            count * placement.micro_batch.get(name, plan.micro_batch)
            for name, count in placement.replicas.items()
        )
        micro_batches = setting.training.micro_batches(1, batch)
    return Share(
        group,
        tuple(range(plan.pipeline)),
        replicas=replicas,
        micro_batches=micro_batches,
        micro_batch=placement.micro_batch.get(group.name, plan.micro_batch),
        devices=replicas * plan.devices // plan.data,
        layers=setting.layers / plan.pipeline,
        state=_state_share(placement, group.name),
    )


def _state_share(placement: Placement, group: str) -> StateShare:
    if not placement.state:
        return EVEN
    weights, replicas = placement.state, placement.replicas
    mean = sum(replicas[name] * weight for name, weight in weights.items()) / sum(replicas.values())
    return StateShare(weights[group] / mean, max(weights.values()) / mean)


def _check_stages(setting: MixedSetting, plan: Plan, parts: list[Share], where: str) -> None:
    """The stages and their layers are those of the plan and the model."""
    placement, model = setting.placement, setting.model
    if len(placement.stages) != plan.pipeline:
        raise InputError(
            f"stages names {len(placement.stages)} stages, the plan has pipeline = {plan.pipeline}", where
        )
    if plan.rank_order != "tensor-context-data-pipeline":
        raise InputError("stages on groups need rank_order tensor-context-data-pipeline", where)
    if not placement.layers:
        return
    layers = sum(len(share.stages) * int(share.layers) for share in parts)
    if layers != setting.layers:
        raise InputError(f"layers add up to {layers}, {model.name} has {setting.layers}", where)
    if plan.first_stage_layers or plan.last_stage_layers:
        raise InputError("give layers here or first_stage_layers and last_stage_layers in the plan", where)
    if len({*map(model.is_moe_layer, range(model.layers))}) > 1 or setting.layers > model.layers:
        raise InputError(f"layers need a model of equal layers, which {model.name} is not", where)


def _check_replicas(setting: MixedSetting, plan: Plan, parts: list[Share], where: str) -> None:
    """The replicas and their micro batches are those of the plan and the batch."""
    placement, replicas = setting.placement, sum(share.replicas for share in parts)
    if replicas != plan.data:
        raise InputError(f"replicas add up to {replicas}, the plan has data = {plan.data}", where)
    batch = setting.training.global_batch
    trained = sum(share.replicas * share.micro_batches * share.micro_batch for share in parts)
    if trained != batch:
        raise InputError(
            f"replicas x micro_batches x micro_batch = {trained} does not equal global_batch = {batch}", where
        )
    if placement.state and not plan.zero:
        raise InputError("state shares what zero >= 1 shards; the plan has zero: 0", where)
    if placement.state and setting.training.adapter is not None:
        raise InputError("state is not shared unequally beside an adapter", where)
    if plan.zero >= 2 and len({share.micro_batches for share in parts}) > 1:
        raise InputError(
            f"zero: {plan.zero} communicates in each micro batch, so replicas need equal micro_batches", where
        )
    experts = plan.expert * plan.expert_tensor
    for share in parts:
        ranks = share.replicas * plan.context * plan.tensor
        if ranks % experts:
            raise InputError(
                f"expert x expert_tensor = {experts} does not divide the {ranks} ranks of a stage in group "
                f"{share.group.name!r}: expert-parallel ranks stay within a group",
                where,
            )


@dataclass(frozen=True)
class MixedSetting:
    """A training question on a cluster of groups, with the placement of its plan."""

    model: Model
    cluster: MixedCluster
    training: Training
    framework: Framework
    placement: Placement
    allow: tuple[str, ...] = ()

    @cached_property
    def layers(self) -> int:
        """Layers that the step trains."""
        return self.model.layers + (
            self.model.trained_mtp_layers if Choices.of(self.framework.defaults).trains_mtp else 0
        )

    def on(self, share: Share, plan: Plan, joined: bool = False) -> Setting:
        """Return the setting in which every device is of the group's kind.

        Args:
            share: the group, its micro batches and its part of the state.
            plan: its devices are those of the whole job.
            joined: nodes communicate over the joining network.
        """
        group, together = share.group, share.devices // len(share.stages)
        if self.placement.replicas:
            together = share.devices
        cluster = group.uniform(plan.devices)
        if joined:
            cluster = group.joined(plan.devices, self.cluster.join, together)
        batch = share.micro_batches * plan.data * share.micro_batch
        training = self.training.model_copy(update={"global_batch": batch})
        return Setting(
            self._model(share, plan),
            cluster,
            training,
            self.framework,
            allow=self.allow,
            state_share=share.state,
        )

    def _model(self, share: Share, plan: Plan) -> Model:
        """The model, or one with the group's layers on every stage."""
        if not self.placement.layers:
            return self.model
        layers = int(share.layers) * plan.pipeline
        return build(Model, {**self.model.model_dump(), "layers": layers}, self.model.name)
