"""Move of the policy's weights from the trainer's shards to the rollout engine's."""

from __future__ import annotations

from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.ops.counts import model_parameters
from simulator.plan import Plan
from simulator.setting import Setting

WEIGHT_BYTES = 2.0
"""Bytes of a parameter on the way: trainers hand over 16-bit weights, and engines convert."""


LAYER_TENSORS = 9
"""Weight tensors of a decoder layer in a checkpoint: four of attention, three of an MLP, two norms."""
EXPERT_TENSORS = 3
"""Those of one expert."""


def tensors(model: Model) -> int:
    """Weight tensors of a model's checkpoint, about: those that a layer has, and three an expert."""
    experts = model.moe.experts if model.moe else 0
    return LAYER_TENSORS * model.layers + EXPERT_TENSORS * experts * model.moe_layers


def gathered_seconds(setting: Setting, plan: Plan) -> float:
    """Seconds in which every device of the trainer gathers all parameters of a copy of the model.

    Engines on the trainer's devices take their shards from the gathered tensors in place.
    """
    shards = plan.pipeline * max(plan.tensor * plan.context, plan.expert * (plan.expert_tensor or 1))
    size = min(shards, setting.cluster.devices)
    whole = WEIGHT_BYTES * model_parameters(setting.model)
    return float(setting.cluster.collective("all_gather", whole, size)) if size > 1 else 0.0


def sent_seconds(cluster: Cluster, setting: Setting, replicas: int, devices: int) -> float:
    """Seconds of a broadcast of all parameters from the trainer to engines on devices of their own.

    Args:
        cluster: all devices of both roles.
        setting: the trainer's.
        replicas: of the engine.
        devices: of one replica.
    """
    whole = WEIGHT_BYTES * model_parameters(setting.model)
    stride = max(cluster.devices // (replicas * devices + 1), 1)
    return float(cluster.collective("broadcast", whole, replicas * devices + 1, stride, concurrent=False))
