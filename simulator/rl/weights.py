"""Moves of the policy's weights from the trainer to the rollout engine: gather, convert, send, load."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from core.records import record
from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.ops.counts import expert_parameters, model_parameters
from simulator.plan import Plan
from simulator.rl.transfers import WeightTransfer
from simulator.serving.starts.host import PAGEABLE
from simulator.setting import Setting

WEIGHT_BYTES = 2.0
"""Bytes of a parameter on the way: trainers hand over 16-bit weights, and engines convert."""
LAYER_TENSORS = 9
"""Weight tensors of a decoder layer in a checkpoint: four of attention, three of an MLP, two norms."""
EXPERT_TENSORS = 3
"""Those of one expert."""


@record()
class WeightMove:
    """Seconds of the parts of a move of weights.

    Attributes:
        gather: all-gathers of shards on the trainer's devices.
        host: copies to host memory and back, or to files and from them.
        convert: change of format on a device.
        send: broadcasts to engines on devices of their own; 0 where they share the trainer's.
        load: host work: tensors handed over one by one, calls of the engine's loader.
    """

    gather: float
    host: float
    convert: float
    send: float
    load: float

    @property
    def seconds(self) -> float:
        """Kernels run beside the host work that launches them; copies to host memory and files do not."""
        return self.host + max(self.gather + self.convert + self.send, self.load)


@record()
class Receivers:
    """Where weights go.

    Attributes:
        devices: of all replicas; 0: the trainer's own.
        weight_bytes: bytes of a parameter in the engine's format.
    """

    devices: int
    weight_bytes: float


def tensors(model: Model) -> int:
    """Weight tensors of a model's checkpoint, about: those that a layer has, and three an expert."""
    experts = model.moe.experts if model.moe else 0
    return LAYER_TENSORS * model.layers + EXPERT_TENSORS * experts * model.moe_layers


def _units(model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Count and bytes of tensors by class: those of layers, and those of experts; shape (2,)."""
    dense = LAYER_TENSORS * model.layers
    routed = tensors(model) - dense
    expert_bytes = WEIGHT_BYTES * expert_parameters(model) / EXPERT_TENSORS if routed else 0.0
    model_bytes = WEIGHT_BYTES * model_parameters(model)
    return np.array([dense, routed], dtype=float), np.array(
        [(model_bytes - routed * expert_bytes) / dense, expert_bytes]
    )


def weight_move(
    cluster: Cluster,
    setting: Setting,
    plan: Plan,
    transfer: WeightTransfer,
    engines: Receivers,
    tensor_s: float,
) -> WeightMove:
    """Seconds of a move.

    Args:
        cluster: all devices of both roles.
        setting: the trainer's.
        plan: the trainer's.
        transfer: how weights move.
        engines: where they go.
        tensor_s: host time to hand over one tensor, s.
    """
    model = setting.model
    model_bytes = WEIGHT_BYTES * model_parameters(model)
    counts, sizes = _units(model)
    calls, buckets = tensors(model), math.ceil(model_bytes * transfer.share / transfer.bucket_bytes)
    apart = engines.devices > 0
    by_tensor = apart and transfer.send == "tensor"
    loads = transfer.layer_walk_s * model.layers * (calls if by_tensor else buckets)
    send = 0.0
    if apart and not transfer.through_files:
        size = engines.devices + 1
        stride = max(cluster.devices // size, 1)
        units = (counts, sizes) if by_tensor else (buckets, model_bytes * transfer.share / buckets)
        send = float(np.sum(units[0] * cluster.collective("broadcast", units[1], size, stride, False)))
    return WeightMove(
        gather=_gathered(setting, plan, transfer, (counts, sizes), model_bytes),
        host=_through_host(cluster, setting.cluster.devices, transfer, engines, model_bytes)
        if apart
        else 0.0,
        convert=_converted(cluster, setting.cluster.devices, engines, model_bytes),
        send=send,
        load=loads + tensor_s * calls,
    )


def _gathered(
    setting: Setting,
    plan: Plan,
    transfer: WeightTransfer,
    units: tuple[NDArray[np.float64], NDArray[np.float64]],
    model_bytes: float,
) -> float:
    """All-gathers over the ranks that hold a copy of the model together."""
    shards = plan.pipeline * max(plan.tensor * plan.context, plan.expert * (plan.expert_tensor or 1))
    if plan.zero == 3:
        shards = plan.shard_group or setting.cluster.devices
    size = min(shards, setting.cluster.devices)
    if size == 1 or transfer.every_token:
        return 0.0
    if transfer.gather == "all":
        return float(setting.cluster.collective("all_gather", model_bytes, size))
    counts, sizes = units
    return float((counts * setting.cluster.collective("all_gather", sizes, size)).sum())


def gathered_tokens_s(setting: Setting, plan: Plan, tokens: float) -> float:
    """Seconds in which all ranks gather a model's shards, layer by layer, for some tokens.

    Shards that lie on hosts reach their device first (DeepSpeed: runtime/zero/partition_parameters.py).

    Args:
        setting: the trainer's.
        plan: the trainer's.
        tokens: one after the other, of all batches.
    """
    size = plan.shard_group or setting.cluster.devices
    layer_bytes = WEIGHT_BYTES * model_parameters(setting.model) / setting.model.layers
    gathered = float(setting.cluster.collective("all_gather", layer_bytes, size))
    on_hosts = plan.place.parameters.off_device if plan.place else 0.0
    copied = on_hosts * layer_bytes / size / setting.cluster.rates.link
    return tokens * setting.model.layers * (gathered + copied)


def _through_host(
    cluster: Cluster, trainers: int, transfer: WeightTransfer, engines: Receivers, model_bytes: float
) -> float:
    """Copies down, one tensor after the other, and up, or a checkpoint written and read by every node."""
    if transfer.through_files:
        files, sent = cluster.full_file_system, model_bytes * transfer.share
        readers = cluster.nodes_for(engines.devices)
        return sent / files.write_bytes_s + sent * readers / files.read_bytes_s
    if not transfer.pageable:
        return 0.0
    up = model_bytes / cluster.nodes_for(trainers) / (cluster.full_node.host_copy_bytes_s or math.inf)
    return model_bytes / (PAGEABLE * cluster.rates.link) + up


def _converted(cluster: Cluster, trainers: int, engines: Receivers, model_bytes: float) -> float:
    """A kernel that reads 16-bit weights and writes the engine's format, on the devices that hold them."""
    if engines.weight_bytes >= WEIGHT_BYTES:
        return 0.0
    through = model_bytes * (1 + engines.weight_bytes / WEIGHT_BYTES)
    return through / (engines.devices or trainers) / cluster.device.memory_bandwidth
