"""The keys of a scenario of post-training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from core.errors import InputError, located
from core.loading import Strict, build
from core.quantities import Count
from hwmodels.cluster import Cluster, clusters
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.rl.algorithms import Algorithm, algorithms
from simulator.rl.frameworks import DEGREES, RlFramework, rl_frameworks
from simulator.rl.roles import Roles
from simulator.rl.schedules import AnyRlSchedule, PhasesInTurn
from simulator.rl.setting import RlSetting, rollout_setting, trainer_setting
from simulator.rl.transfers import transfers
from simulator.rl.workload import RlWorkload
from simulator.scenario import Reference, Variation, find


class RlDefinition(Strict):
    """The keys of a scenario file of post-training."""

    title: str = Field("", description="the question in one line")
    model: Reference = Field(description="the policy: catalogue name, path or mapping")
    cluster: Reference = Field(description="catalogue name, path or mapping")
    gpus: Count = Field(description="devices of the job")
    workload: RlWorkload = Field(description="what a step generates and trains on")
    framework: Reference = Field("nemo-rl", description="system of post-training: name, path or mapping")
    weights: Reference | None = Field(
        None, description="way of the weights to the engine (`show weight-transfers`); default: the system's"
    )
    roles: Roles = Field(default_factory=lambda: Roles.model_validate({}), description="who does what")
    schedule: AnyRlSchedule = Field(
        default_factory=lambda: PhasesInTurn.model_validate({}), description="when the roles work"
    )
    seed: int = Field(0, ge=0, le=10**18, description="of all random draws")
    variations: dict[str, Variation] = Field(
        default_factory=dict, description="named changes to ask `whatif` about"
    )


def make_rl(data: Mapping[str, Any], where: str, folder: Path) -> RlSetting:
    """Turn the mapping of a scenario of post-training into a setting.

    Args:
        data: keys and values as in a file.
        where: name of the source in errors.
        folder: base of relative paths.

    Raises:
        InputError: a wrong key or value, an unknown name, roles that cannot be laid out; with the key path.
        InfeasibleError: the rollout engine does not fit.
    """
    written = build(RlDefinition, data, where)
    model = find(models, written.model, folder, f"{where}: model")
    cluster = _sized(
        find(clusters, written.cluster, folder, f"{where}: cluster"), written.gpus, f"{where}: gpus"
    )
    system = find(rl_frameworks, written.framework, folder, f"{where}: framework")
    algorithm = find(algorithms, written.workload.algorithm, folder, f"{where}: workload.algorithm")
    train, generate = _devices(written, where)
    framework = find(
        frameworks, written.roles.train.framework or system.train, folder, f"{where}: roles.train.framework"
    )
    packing = written.roles.train.packing or system.packing
    plan_at = f"{where}: roles.train.plan"
    if written.roles.train.framework in (None, system.train):
        _offered(written.roles.train.plan, system, plan_at)
    on_train = _sized(cluster, train, f"{where}: schedule.split.train")
    trainer, plan = trainer_setting(
        (model, on_train, framework, written.workload),
        *(written.roles.train.plan, packing, written.seed, plan_at),
    )
    rows_of_pass, scoring = written.roles.train.scoring_micro_batch, (trainer, plan)
    all_at_once = written.workload.model_copy(update={"mini_batch": None})
    if rows_of_pass is not None or all_at_once != written.workload:
        stated = written.roles.train.plan
        if rows_of_pass is not None:
            stated = {**stated, "micro_batch": rows_of_pass}
        scoring = trainer_setting(
            (model, on_train, framework, all_at_once),
            *(stated, packing, written.seed, f"{where}: roles.train.scoring_micro_batch"),
        )
    deployment = _deployment(written, system.engine, system.memory_share)
    place = generate, written.seed, where, folder
    rollouts = rollout_setting(written.workload, written.model, written.cluster, deployment, place)
    scorers = {
        role: replace(
            scoring[0], model=find(models, reference or written.model, folder, f"{where}: roles.{role}")
        )
        for role, reference in _scorers(algorithm, written.roles, where).items()
    }
    return RlSetting(
        title=written.title,
        model=model,
        cluster=cluster,
        workload=written.workload,
        algorithm=algorithm,
        framework=system,
        schedule=written.schedule,
        transfer=find(transfers, written.weights or system.transfer, folder, f"{where}: weights"),
        trainer=trainer,
        plan=plan,
        scoring=scoring,
        rollouts=rollouts,
        scorers=scorers,
        offload=system.offload if written.roles.train.offload is None else written.roles.train.offload,
        environments=written.roles.environment,
    )


def _sized(cluster: Cluster, devices: int, where: str) -> Cluster:
    with located(where):
        return cluster.resized(devices)


def _offered(plan: Mapping[str, Any], system: RlFramework, where: str) -> None:
    """Check that a system's own trainer takes the degrees of a plan, and its stage of ZeRO.

    Raises:
        InputError: it does not.
    """
    for name in DEGREES:
        if name not in system.degrees and plan.get(name, 1) != 1:
            offered = ", ".join(("data", *system.degrees))
            raise InputError(
                f"the trainer of {system.title} has no such degree; it has {offered}", f"{where}.{name}"
            )

    stage = plan.get("zero")
    if stage is not None and stage not in system.zero:
        stages = ", ".join(map(str, system.zero))
        raise InputError(f"the trainer of {system.title} shards by {stages}, found {stage}", f"{where}.zero")


def _devices(written: RlDefinition, where: str) -> tuple[int, int]:
    """Devices of the trainer and of the rollout engine."""
    split = written.schedule.split
    if split is None:
        return written.gpus, written.gpus
    if split.train + split.generate != written.gpus:
        raise InputError(
            f"train {split.train} + generate {split.generate} are not the job's {written.gpus} devices",
            f"{where}: schedule.split",
        )
    return split.train, split.generate


def _deployment(written: RlDefinition, engine: str, memory_share: float) -> dict[str, Any]:
    """A replica of the rollout engine, with the system's defaults."""
    stated = {"engine": engine, **written.roles.generate}
    options = stated.get("options", {})
    if written.schedule.split is None and isinstance(options, Mapping):
        stated["options"] = {"memory_share": memory_share, **options}
    return stated


def _scorers(algorithm: Algorithm, roles: Roles, where: str) -> dict[str, Any]:
    """Models that score answers beside the policy, by role.

    Raises:
        InputError: a model for a role that the algorithm does not have.
    """
    has = {"reference": algorithm.reference, "reward": algorithm.reward_model, "critic": algorithm.critic}
    for role, present in has.items():
        if getattr(roles, role) is not None and not present:
            raise InputError(f"{algorithm.name} has no {role} model", f"{where}: roles.{role}")
    return {role: getattr(roles, role) for role, present in has.items() if present}
