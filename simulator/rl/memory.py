"""Memory of a device in both halves of a step, where roles share devices or the trainer has its own."""

from __future__ import annotations

import numpy as np

from core.records import record
from simulator.ops.counts import model_parameters
from simulator.plan import Plan, Plans
from simulator.rl.setting import RlSetting
from simulator.serving.engines import Engine
from simulator.serving.steps.costs import engine_of
from simulator.setting import Setting
from simulator.training.analytic import Step, predict
from simulator.training.memory import StageMemory, memory

GIB = 2.0**30
KEPT = "parameters", "optimizer"
"""Parts of the trainer's memory between two steps; gradients are given up."""
STATE_BYTES = 14.0
"""Bytes of a parameter that trains: 16-bit weights, a 32-bit copy and Adam's moments."""
WEIGHT_BYTES = 2.0
"""Bytes of a parameter of a model that only runs forward, and of its activations."""
WORKSPACE_ACTIVATIONS = 10
"""Activations as wide as all heads that DeepSpeed's inference workspace holds a token (GenWorkSpace)."""


@record()
class RlMemory:
    """Bytes of the fullest device.

    Attributes:
        state: what the trainer keeps between steps, critic included: weights and optimizer.
        beside: what lies beside the trainer's step: weights of models that score, the critic's state, and
            what the rollout engine keeps while it sleeps.
        trainer: peak of the trainer's half, with ``beside``.
        rollouts: the engine's share, and state and weights that stay on its devices.
        capacity: of a device.
    """

    state: float
    beside: float
    trainer: float
    rollouts: float
    capacity: float

    @property
    def fits(self) -> bool:
        """Whether both halves fit."""
        return max(self.trainer, self.rollouts) <= self.capacity


def step_memory(setting: RlSetting, trained: Step, critic: Step | None) -> RlMemory:
    """Memory of both halves of a step.

    Args:
        setting: the question.
        trained: the step of the policy's update.
        critic: that of the critic's, if there is one.
    """
    capacity = setting.cluster.device.memory_bytes
    policy = _usage(setting.trainer, setting, trained)
    of_critic = 0.0
    if critic is not None and setting.critic is not None:
        of_critic = kept_bytes(_usage(setting.critic, setting, critic))
    state, scoring = kept_bytes(policy) + of_critic, scoring_bytes(setting)
    shared = setting.schedule.split is None
    beside = of_critic + scoring + (sleeping_bytes(setting) if shared else 0.0)
    rollouts = setting.rollouts.pools[0].options.memory_share * capacity
    if shared:
        rollouts += scoring + (0.0 if setting.offload else state)
    return RlMemory(state, beside, float(np.max(policy.peak)) + beside, rollouts, capacity)


def _usage(trainer: Setting, setting: RlSetting, trained: Step) -> StageMemory:
    return memory(trainer, Plans.of(setting.plan), trained.stages, trained.parameters)


def least_beside(setting: RlSetting, trainer: Setting, shared: bool) -> float:
    """Bytes beside any layout of the trainer: those of other models, cut over all devices, and the engine's.

    Args:
        setting: the question.
        trainer: its trainer on some devices.
        shared: the rollout engine sleeps on them.
    """
    devices, on_device = trainer.cluster.devices, setting.framework.scorers_on_device
    others = sum(
        model_parameters(each.model) * (STATE_BYTES if role == "critic" else WEIGHT_BYTES * on_device)
        for role, each in setting.scorers.items()
    )
    return others / devices + (sleeping_bytes(setting) if shared else 0.0)


def lacking(memory: RlMemory) -> str:
    """Which half does not fit, and by how much."""
    halves = {"the trainer": memory.trainer, "the rollout engine": memory.rollouts}
    role = max(halves, key=lambda name: halves[name])
    return (
        f"{role} needs {halves[role] / GIB:,.1f} GiB of a device, with what lies beside it, of "
        f"{memory.capacity / GIB:,.1f}"
    )


def peak_bytes(trainer: Setting, plan: Plan) -> float:
    """Peak of a step of a trainer alone."""
    plans = Plans.of(plan)
    trained = predict(trainer, plans)
    return float(np.max(memory(trainer, plans, trained.stages, trained.parameters).peak))


def kept_bytes(usage: StageMemory) -> float:
    """Bytes of a trainer's state between two steps, on the stage that has most."""
    return float(np.where(usage.present, sum(usage.parts[name] for name in KEPT), 0.0).max())


def scoring_bytes(setting: RlSetting) -> float:
    """Weights of the reference and the reward model, where the system keeps them on the trainer's devices."""
    if not setting.framework.scorers_on_device:
        return 0.0
    parameters = sum(
        model_parameters(each.model) for role, each in setting.scorers.items() if role != "critic"
    )
    plan = setting.plan
    ranks = setting.trainer.cluster.devices
    shards = ranks if plan.zero == 3 else plan.pipeline * plan.tensor
    return WEIGHT_BYTES * parameters / min(shards, ranks)


def _workspace_bytes(setting: RlSetting) -> float:
    """DeepSpeed's inference workspace of a batch: KV, ten activations a token that no rank shards, scores.

    The lengths are those of the longest answer (DeepSpeed: csrc/transformer/inference/includes/
    inference_context.h, GenWorkSpace).
    """
    served, work = setting.rollouts.pools[0], setting.workload
    sequences = min(
        served.options.max_sequences, -(-work.answers // (served.pool.replicas * served.pool.data))
    )
    activations = WORKSPACE_ACTIVATIONS * setting.model.heads * setting.model.head_dim
    scores = setting.model.heads / served.pool.devices * work.longest
    token_bytes = served.costs.kv_token_bytes / served.pool.devices + WEIGHT_BYTES * (activations + scores)
    return sequences * work.longest * token_bytes


def sleeping_bytes(setting: RlSetting) -> float:
    """What the rollout engine keeps on a device while the trainer works.

    A sleeping engine gives up weights and KV; its context, captured graphs and communication buffers stay
    (vLLM: 0.8 GB with one rank, 2.6 GB with two; NVIDIA-NeMo/RL issue 223).
    """
    served = setting.rollouts.pools[0]
    if setting.framework.engine_keeps == "all":
        return served.options.memory_share * setting.cluster.device.memory_bytes
    if setting.framework.engine_keeps == "workspace":
        return _workspace_bytes(setting)
    engine: Engine = engine_of(served.pool.engine, setting.rollouts.folder, setting.rollouts.where)
    buffers = engine.rank_bytes.value * (served.pool.devices > 1)
    return engine.context_bytes.value + engine.graph_bytes.value + engine.library_bytes.value + buffers
