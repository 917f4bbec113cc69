"""A question of post-training with all references resolved and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError
from hwmodels.cluster import Cluster
from simulator.frameworks import Framework
from simulator.lengths.base import Lengths
from simulator.models import Model
from simulator.plan import Plan
from simulator.rl.algorithms import Algorithm
from simulator.rl.frameworks import RlFramework
from simulator.rl.roles import Environments
from simulator.rl.schedules import RlSchedule
from simulator.rl.transfers import WeightTransfer
from simulator.rl.workload import RlWorkload
from simulator.scenario import complete_plan, fill_plan
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting
from simulator.setting import Setting
from simulator.workload import Training

DRAWN = 4096
"""Prompts with answers that the law of a training step's rows is made of."""
QUANTILES = 128
"""Lengths that stand for them."""
ROWS = 64
"""Rows that the share of padding is read off."""


@dataclass(frozen=True)
class RlSetting:
    """The fixed inputs of a step of post-training."""

    title: str
    model: Model
    cluster: Cluster
    workload: RlWorkload
    algorithm: Algorithm
    framework: RlFramework
    schedule: RlSchedule
    transfer: WeightTransfer
    trainer: Setting
    """Of one optimizer step, on the trainer's devices."""
    plan: Plan
    scoring: tuple[Setting, Plan]
    """The trainer's setting and plan in forward passes over answers."""
    rollouts: ServingSetting
    """Of one step's answers, on the rollout engine's devices."""
    more_rollouts: ServingSetting
    """Of two steps' answers at once."""
    scorers: Mapping[str, Setting]
    """The setting of ``scoring`` with the model of the reference, the reward and the critic."""
    offload: bool = True
    """The trainer's state leaves shared devices for rollouts."""
    environments: Environments | None = None

    @property
    def critic(self) -> Setting | None:
        """The critic's updates, if there is one."""
        critic = self.scorers.get("critic")
        return None if critic is None else replace(self.trainer, model=critic.model)

    @property
    def replicas(self) -> int:
        """Replicas of the rollout engine."""
        return self.rollouts.pools[0].pool.replicas


def lengths_of(workload: RlWorkload, seed: int) -> dict[str, Any]:
    """The law of prompts with their answers: quantiles of drawn sums, as a training workload states them."""
    random = np.random.default_rng(seed)
    drawn = [_drawn(law, random) for law in (workload.input, workload.output)]
    places = (np.arange(QUANTILES) + 0.5) / QUANTILES
    return {"kind": "empirical", "tokens": np.rint(np.quantile(sum(drawn), places)).astype(int).tolist()}


def _drawn(law: Lengths, random: np.random.Generator) -> np.ndarray:
    return np.asarray(law.draw(random, DRAWN), dtype=np.float64)


def training_workload(workload: RlWorkload, packing: str, unit: int, seed: int) -> Training:
    """The rows of one optimizer step, as a training workload.

    Args:
        workload: the step.
        packing: how answers lie in rows.
        unit: rows are a multiple of it: the trainer's replicas times their micro batch.
        seed: of the drawn lengths.
    """
    stated = {
        "seq_len": workload.seq_len or workload.longest,
        "lengths": lengths_of(workload, seed),
        "packing": packing,
        "precision": workload.precision,
    }
    answers = workload.mini_batch or workload.answers
    sample = Training.model_validate({**stated, "global_batch": ROWS}).drawn
    rows = float(answers)
    if sample is not None and sample.fills:
        rows = answers * workload.mean * ROWS / sample.real
    return Training.model_validate({**stated, "global_batch": math.ceil(rows / unit) * unit})


def serving_workload(workload: RlWorkload, steps: int) -> dict[str, Any]:
    """The rollouts of some steps at once, as a serving workload: a burst whose answers share their prompt."""
    prompts = math.ceil(workload.prompts * workload.sampled) * steps
    one = workload.samples == 1
    return {
        "kind": "serving",
        "requests": prompts * workload.samples,
        "arrivals": {"kind": "burst"},
        "input": workload.input.model_dump(mode="json"),
        "output": workload.output.model_dump(mode="json"),
        **({} if one else {"program": {"kind": "samples", "count": workload.samples}}),
    }


def rollout_setting(
    workload: RlWorkload,
    model: Any,
    cluster: Any,
    deployment: Mapping[str, Any],
    place: tuple[int, int, str, Path],
    steps: int,
) -> ServingSetting:
    """The rollout engine on its devices.

    Args:
        workload: the step.
        model, cluster: as the scenario names them.
        deployment: a replica, with the keys of a serving deployment.
        place: devices, seed, name of the source in errors, and base of relative paths.
        steps: steps whose answers are generated at once.
    """
    devices, seed, where, folder = place
    degrees = [int(deployment.get(name) or 1) for name in ("tensor", "pipeline", "data")]
    each = math.prod(degrees)
    if devices % each:
        raise InputError(
            f"{devices} devices are no multiple of a replica's {each}", f"{where}: roles.generate"
        )
    data = {
        "model": model,
        "cluster": cluster,
        "gpus": devices,
        "workload": serving_workload(workload, steps),
        "deployment": {**deployment, "replicas": devices // each},
        "seed": seed,
    }
    try:
        rollouts = make_serving(data, where, folder)
    except InputError as error:
        problem, key = (text.replace("deployment", "roles.generate") for text in (error.problem, error.where))
        raise InputError(problem, key) from None
    if workload.longest > rollouts.context:
        raise InputError(
            f"a prompt with the longest answer has {workload.longest:,} tokens; the engine's context is "
            f"{rollouts.context:,}; bound the answers (output.most), or set "
            "roles.generate.options.max_context",
            f"{where}: workload.output",
        )
    return rollouts


def trainer_setting(
    asked: tuple[Model, Cluster, Framework, RlWorkload],
    plan: Mapping[str, Any],
    packing: str,
    seed: int,
    where: str,
) -> tuple[Setting, Plan]:
    """The trainer's setting and its plan; the rows of a step follow from the plan's replicas.

    Args:
        asked: policy, the trainer's devices, training framework and step.
        plan: as the scenario states it.
        packing: how answers lie in rows.
        seed: of the drawn lengths.
        where: key path of the plan, for errors.

    Raises:
        InputError: a wrong key or value of the plan, or a rule that it breaks.
    """
    model, cluster, framework, workload = asked
    rows = Training.model_validate({"seq_len": 1, "global_batch": 1, "precision": workload.precision})
    shape = fill_plan(Setting(model, cluster, rows, framework), plan, where)
    training = training_workload(workload, packing, shape.data * shape.micro_batch, seed)
    setting = Setting(model, cluster, training, framework)
    return setting, complete_plan(setting, plan, where)
