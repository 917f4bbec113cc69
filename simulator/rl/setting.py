"""A question of post-training with all references resolved and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
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
    scorers: Mapping[str, Setting]
    """The setting of ``scoring`` with the model of the reference, the reward and the critic."""
    offload: bool = True
    """The trainer's state leaves shared devices for rollouts."""
    environments: Environments | None = None

    @property
    def more_rollouts(self) -> ServingSetting:
        """The rollouts of two steps' answers at once."""
        serving = self.rollouts.serving
        more = serving.model_copy(update={"requests": 2 * serving.requests})
        return replace(self.rollouts, serving=more)

    @property
    def critic(self) -> Setting | None:
        """The critic's updates, if there is one."""
        critic = self.scorers.get("critic")
        return None if critic is None else replace(self.trainer, model=critic.model)

    @property
    def nodes(self) -> int:
        """Nodes of the job."""
        return self.cluster.nodes_for(self.cluster.devices)

    @property
    def host_pass_s(self) -> float:
        """Seconds in which hosts move a step's tokens once: each node its share, or one controller all."""
        hosts = self.nodes if self.framework.token_hosts == "nodes" else 1
        answer = self.workload.longest if self.framework.padded else self.workload.mean
        return self.framework.token_s * self.workload.answers * answer / hosts

    @property
    def rollout_passes(self) -> int:
        """Passes at the end of rollouts: a controller reads what the engine's workers return, and joins it.

        Where rollouts run beside updates, another process reads answers while the engine goes on.
        """
        return 1 if self.schedule.beside else 2

    @property
    def host_s(self) -> float:
        """Seconds of all passes of a step's tokens through hosts.

        Passes are none of the devices' work, and the trainer's loop waits for them: where rollouts run beside
        updates, it still takes the answers from a queue, joins them and hands them to its ranks.
        """
        if self.framework.token_passes == "step":
            return self.host_pass_s
        scorings = self.algorithm.old_log_probs + len(self.scorers)
        updated = 1 + ("critic" in self.scorers)
        return (self.rollout_passes + scorings + updated) * self.host_pass_s

    @property
    def replicas(self) -> int:
        """Replicas of the rollout engine."""
        return self.rollouts.pools[0].pool.replicas


@lru_cache(maxsize=64)
def _sample(workload: str, packing: str, seed: int) -> Training:
    """Rows of prompts with their answers under a packing, of a workload that is written as JSON.

    The law is made of quantiles of drawn sums.
    """
    work, random = RlWorkload.model_validate_json(workload), np.random.default_rng(seed)
    drawn = [_drawn(law, random) for law in (work.input, work.output)]
    places = (np.arange(QUANTILES) + 0.5) / QUANTILES
    lengths = np.rint(np.quantile(sum(drawn), places)).astype(int).tolist()
    return Training.model_validate(
        {
            "seq_len": work.seq_len or work.longest,
            "lengths": {"kind": "empirical", "tokens": lengths},
            "packing": packing,
            "precision": work.precision,
            "global_batch": ROWS,
        }
    )


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
    sample = _sample(workload.model_dump_json(), packing, seed)
    rows = float(workload.mini_batch or workload.answers)
    if sample.drawn is not None and sample.drawn.fills:
        rows *= workload.mean * ROWS / sample.drawn.real
    stated = sample.model_dump(mode="json")
    return Training.model_validate({**stated, "global_batch": math.ceil(rows / unit) * unit})


def serving_workload(workload: RlWorkload) -> dict[str, Any]:
    """The rollouts of a step as a serving workload: a burst whose answers share their prompt."""
    single = workload.samples == 1
    return {
        "kind": "serving",
        "requests": math.ceil(workload.prompts * workload.sampled) * workload.samples,
        "arrivals": {"kind": "burst"},
        "input": workload.input.model_dump(mode="json"),
        "output": workload.output.model_dump(mode="json"),
        **({} if single else {"program": {"kind": "samples", "count": workload.samples}}),
    }


def rollout_setting(
    workload: RlWorkload,
    model: Any,
    cluster: Any,
    deployment: Mapping[str, Any],
    place: tuple[int, int, str, Path],
) -> ServingSetting:
    """The rollout engine on its devices.

    Args:
        workload: the step.
        model, cluster: as the scenario names them.
        deployment: a replica, with the keys of a serving deployment.
        place: devices, seed, name of the source in errors, and base of relative paths.
    """
    devices, seed, where, folder = place
    degrees = [int(deployment.get(name) or 1) for name in ("tensor", "pipeline", "data")]
    each = math.prod(degrees)
    if devices % each:
        raise InputError(
            f"{devices} devices are no multiple of a replica's {each}", f"{where}: roles.generate"
        )
    served, replicas = serving_workload(workload), devices // each
    # Systems cut a step's answers into equal runs (NeMo RL, batched_data_dict.py: shard_by_batch_size; verl,
    # protocol.py: DataProto.chunk), so answers to a prompt share its KV.
    in_runs = {"router": "round-robin", "router_options": {"run": math.ceil(served["requests"] / replicas)}}
    data = {
        "model": model,
        "cluster": cluster,
        "gpus": devices,
        "workload": served,
        "deployment": {**({} if "router" in deployment else in_runs), **deployment, "replicas": replicas},
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
    references: tuple[Model, Cluster, Framework, RlWorkload],
    plan: Mapping[str, Any],
    packing: str,
    seed: int,
    where: str,
) -> tuple[Setting, Plan]:
    """The trainer's setting and its plan; the rows of a step follow from the plan's replicas.

    Args:
        references: policy, the trainer's devices, training framework and step.
        plan: as the scenario states it.
        packing: how answers lie in rows.
        seed: of the drawn lengths.
        where: key path of the plan, for errors.

    Raises:
        InputError: a wrong key or value of the plan, or a rule that it breaks.
    """
    model, cluster, framework, workload = references
    rows = Training.model_validate({"seq_len": 1, "global_batch": 1, "precision": workload.precision})
    shape = fill_plan(Setting(model, cluster, rows, framework), plan, where)
    training = training_workload(workload, packing, shape.data * shape.micro_batch, seed)
    setting = Setting(model, cluster, training, framework)
    return setting, complete_plan(setting, plan, where)
