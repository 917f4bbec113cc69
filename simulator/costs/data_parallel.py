"""Gradient reduction, parameter gathering and the optimizer: what follows from data parallelism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs.overlap import contention, hide
from simulator.layout.stages import gathered_together
from simulator.plan import FULL, PIPELINE_INSIDE_DATA, Plans
from simulator.setting import Setting

BUCKET_PARAMETERS = 40e6
"""Parameters of a gradient bucket; Megatron-LM's default (``--ddp-bucket-size``), DDP's is of the same
order."""


@dataclass
class Groups:
    """The ranks that share one kind of state: ``shard`` inside, ``replicas`` of it outside."""

    shard: np.ndarray
    shard_stride: np.ndarray
    replicas: np.ndarray
    replica_stride: np.ndarray

    @classmethod
    def dense(cls, plans: Plans) -> Groups:
        """Ranks with the same dense parameters: context and data, ``tensor`` apart."""
        return cls._split(plans, plans.context * plans.data, plans.tensor)

    @classmethod
    def experts(cls, plans: Plans) -> Groups:
        """Ranks with the same experts."""
        inside = plans.expert * plans.expert_tensor
        return cls._split(plans, plans.tensor * plans.context * plans.data // inside, inside)

    @classmethod
    def _split(cls, plans: Plans, ranks: np.ndarray, stride: np.ndarray) -> Groups:
        shard = np.where(plans.shard_group > 0, np.minimum(plans.shard_group, ranks), ranks)
        # Data-parallel ranks lie outside the pipeline when the plan orders them so.
        outer = np.where(plans.rank_order == PIPELINE_INSIDE_DATA, plans.pipeline, 1)
        across = np.where(plans.context > 1, 1, outer)
        return cls(shard, stride * across, ranks // shard, stride * across * shard)


def reduce_gradients(setting: Setting, plans: Plans, groups: Groups, count: np.ndarray) -> np.ndarray:
    """Seconds to reduce ``count`` gradients once over the ranks that share them, nothing hidden."""
    cluster, size = setting.cluster, count * setting.framework.reduce_bytes
    whole = cluster.collective("all_reduce", size, groups.shard, groups.shard_stride)
    scatter = cluster.collective("reduce_scatter", size, groups.shard, groups.shard_stride)
    inner = np.where(plans.zero >= setting.framework.scatter_from_zero, scatter, whole)
    outer = cluster.collective("all_reduce", size / groups.shard, groups.replicas, groups.replica_stride)
    return inner + np.where(groups.replicas > 1, outer, 0.0)


def gather_parameters(setting: Setting, groups: Groups, count: np.ndarray) -> np.ndarray:
    """Seconds to gather ``count`` sharded parameters once, nothing hidden."""
    size, cluster = count * setting.framework.gather_bytes, setting.cluster
    if setting.framework.gathers_by_broadcast:
        one = cluster.collective("broadcast", size / groups.shard, groups.shard, groups.shard_stride)
        return groups.shard * one
    return cluster.collective("all_gather", size, groups.shard, groups.shard_stride)


STATE_FIELDS = (
    "tensor",
    "pipeline",
    "context",
    "data",
    "expert",
    "expert_tensor",
    "zero",
    "shard_group",
    "first_stage_layers",
    "last_stage_layers",
    "rank_order",
)
"""The plan fields that decide what state a device holds and who shares it, for most models and schedules."""


def move_state(
    setting: Setting,
    plans: Plans,
    dense: np.ndarray,
    experts: np.ndarray,
    gathers: np.ndarray | float = 1.0,
    reductions: np.ndarray | float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds to gather the parameters and to reduce the gradients of one device once, nothing hidden.

    Collectives are costly to evaluate, and most plans of a search hold the same state as others: plans with
    equal ``STATE_FIELDS`` and equal arguments are computed once.

    Args:
        setting: what the plans share.
        plans: the plans.
        dense: dense parameters of one device, shape (plans,).
        experts: expert parameters of one device, shape (plans,).
        gathers: calls that the gathering is cut into.
        reductions: calls that the reduction is cut into.
    """
    given = [np.broadcast_to(values, len(plans)) for values in (dense, experts, gathers, reductions)]
    states, which = plans.unique(*STATE_FIELDS)
    shared = [_of_states(values, which, len(states)) for values in given]
    if not all(np.array_equal(once[which], values) for once, values in zip(shared, given, strict=True)):
        # Chunks or the schedule decide too, as with multi-token prediction; to sort by values is slow.
        states, which = plans.unique(*STATE_FIELDS, values=given)
        shared = [_of_states(values, which, len(states)) for values in given]
    dense, experts, gathers, reductions = shared
    groups = [(Groups.dense(states), dense)]
    if np.any(experts > 0):
        groups.append((Groups.experts(states), experts))
    gather, reduce = np.zeros(len(states)), np.zeros(len(states))
    for group, count in groups:
        gather += gathers * gather_parameters(setting, group, count / gathers)
        reduce += reductions * reduce_gradients(setting, states, group, count / reductions)
    return gather[which], reduce[which]


def _of_states(values: np.ndarray, which: np.ndarray, states: int) -> np.ndarray:
    """One value a state; the last where plans of a state differ."""
    once = np.empty(states)
    once[which] = values
    return once


@dataclass
class DataParallel:
    """Data-parallel seconds of one step on the stage that holds the most parameters; shape (plans,)."""

    gradients: np.ndarray
    parameters: np.ndarray
    gradients_exposed: np.ndarray
    parameters_exposed: np.ndarray
    gradient_kernels: np.ndarray
    optimizer: np.ndarray


def once_a_step(
    setting: Setting,
    plans: Plans,
    dense: np.ndarray,
    experts: np.ndarray,
    backward_window: np.ndarray,
    forward_window: np.ndarray,
    micro_batches: np.ndarray,
    passes: np.ndarray | float = 1.0,
) -> DataParallel:
    """Reduction, gathering and update of a step, for ZeRO stages 0 to 2.

    Stage 2 keeps no more than its shard of the gradients, so it reduces after every micro batch; the others
    reduce once, after the last (Rajbhandari et al. 2020, section 5.2).

    Args:
        setting: what the plans share.
        plans: the plans.
        dense: dense parameters of one device, shape (plans,).
        experts: expert parameters of one device, shape (plans,).
        backward_window: seconds of one micro batch's backward kernels, which the reduction runs beside.
        forward_window: seconds of one micro batch's forward kernels, which the gathering runs beside.
        micro_batches: micro batches of a replica, shape (plans,).
        passes: micro batches' worth of passes between a rank's first finished gradient and its last
            (``Schedule.window``); what more than one adds lies before the last chunk's gradients.
    """
    slow = contention(setting)
    gather, gradients = move_state(setting, plans, dense, experts)
    owned = dense / np.where(plans.zero >= 1, Groups.dense(plans).shard, 1)
    if np.any(experts > 0):
        owned = owned + experts / np.where(plans.zero >= 1, Groups.experts(plans).shard, 1)
    gather = np.where(plans.zero >= 1, gather, 0.0)
    tail = np.minimum(1.0, BUCKET_PARAMETERS / (dense + experts))
    chunks = plans.virtual_pipeline

    def exposed(seconds: np.ndarray, window: np.ndarray) -> np.ndarray:
        """All chunks beside all passes, or the last chunk, which has its own pass only; the longer."""
        last = hide(seconds / chunks, window / chunks, np.minimum(1.0, tail * chunks), slow)
        return np.maximum(hide(seconds, passes * window, tail, slow), last)

    shown = np.where(plans.overlap_gradients, exposed(gradients, backward_window), gradients)
    times = np.where(plans.zero == 2, micro_batches / gathered_together(plans, micro_batches), 1)
    shown_gather = np.where(plans.overlap_parameters, exposed(gather, forward_window), gather)
    traffic = owned * setting.framework.optimizer_bytes_per_parameter
    return DataParallel(
        times * gradients,
        gather,
        times * shown,
        shown_gather,
        _gradient_kernels(setting, plans, owned, dense + experts, micro_batches),
        setting.kernels.memory_bound(traffic, "optimizer"),
    )


def _gradient_kernels(
    setting: Setting, plans: Plans, owned: np.ndarray, held: np.ndarray, micro_batches: np.ndarray
) -> np.ndarray:
    """Seconds to add up gradients that autograd keeps apart, and to copy gradients into and out of buckets.

    Args:
        setting: what the plans share.
        plans: the plans.
        owned: parameters whose sharded state one device holds, shape (plans,).
        held: parameters of one device, shape (plans,).
        micro_batches: micro batches of a replica, shape (plans,).
    """
    framework = setting.framework
    added = np.where(plans.zero >= 2, owned, held) * (0 if framework.adds_first_gradient else 3)
    copied = np.where(plans.data * plans.context > 1, framework.gradient_passes * held, 0.0)
    copied = copied * np.where(plans.zero >= 2, micro_batches, 1)
    moved = framework.gradient_bytes * (added * (micro_batches - 1) + copied)
    return np.where(moved > 0, setting.kernels.memory_bound(moved), 0.0)


@dataclass
class Sharded:
    """What full sharding (ZeRO-3, FSDP) adds to one micro batch of one stage; seconds, shape (plans,)."""

    forward: np.ndarray
    backward: np.ndarray
    forward_exposed: np.ndarray
    backward_exposed: np.ndarray


def each_micro_batch(
    setting: Setting,
    plans: Plans,
    layers: np.ndarray,
    dense: np.ndarray,
    experts: np.ndarray,
    forward: np.ndarray,
    backward: np.ndarray,
    micro_batches: np.ndarray,
) -> Sharded:
    """Gather parameters before each use and reduce-scatter gradients, layer by layer, beside the kernels.

    The first gather of a pass has nothing to run beside, nor has the last reduction (Zhao et al. 2023,
    PyTorch FSDP, section 3.3). Where the schedule lets micro batches share a gather, each has its part of it.

    Args:
        setting: what the plans share.
        plans: the plans.
        layers: layers on one device, each wrapped by itself, shape (plans,).
        dense: dense parameters of one device, shape (plans,).
        experts: expert parameters of one device, shape (plans,).
        forward: seconds of forward kernels of one micro batch, shape (plans,).
        backward: seconds of backward kernels of one micro batch, shape (plans,).
        micro_batches: micro batches of a replica, shape (plans,).
    """
    framework, slow = setting.framework, contention(setting)
    gather, reduce = (
        each / gathered_together(plans, micro_batches)
        for each in move_state(setting, plans, dense, experts, layers * framework.gathers_a_layer, layers)
    )
    ahead = (dense + experts) / layers <= framework.prefetch_parameters
    overlap = np.where(ahead & plans.overlap_parameters, 1 - 1 / layers, 0.0)
    again = np.where((plans.recompute == FULL) & framework.gathers_again, 2.0, 1.0)
    hidden = np.where(plans.overlap_gradients, 1 - 1 / layers, 0.0)
    # Gathers and reductions share one network: reductions hide behind the kernels that gathers leave.
    backward_gather = hide(again * gather, backward, 1 - overlap, slow)
    left = np.maximum(backward - again * gather * overlap, 0.0)
    return Sharded(
        forward=gather,
        backward=again * gather + reduce,
        forward_exposed=hide(gather, forward, 1 - overlap, slow),
        backward_exposed=backward_gather + hide(reduce, left, 1 - hidden, slow),
    )
