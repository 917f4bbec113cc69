"""Peak memory of a training step on one device, part by part, over arrays of plans.

Activations are those of ``simulator.training.activations``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from core.records import record
from simulator.layout.model_ops import ModelOps
from simulator.layout.parameters import Parameters, parameters
from simulator.layout.stages import Stages, gathered_together
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.state.adapter import BASE_BYTES
from simulator.state.formats import PAGED_STATES
from simulator.state.place import STATE_CLASSES
from simulator.training.activations import (
    Kept,
    LossMemory,
    between_and_reopened,
    held_activations,
    in_flight,
    kept_by_busiest,
    kept_by_layers,
    with_loss,
)
from simulator.training.counts import micro_batches
from simulator.training.fixed_memory import FixedMemory
from simulator.training.lever_memory import graph_bytes, partner_bytes
from simulator.training.loss_memory import cached_by_loss, loss_memory, table_parameters
from simulator.training.outer import outer_bytes, synchronised_apart
from simulator.training.placement_shares import moments_share, placed, share_on, units_ahead
from simulator.training.sharding import Sharding
from simulator.training.tower_memory import tower_memory
from simulator.training.weight_copies import narrow_copies, parameters_between_passes

PeakCount = Literal["device", "reserved", "allocated"]
PEAK_COUNTS: tuple[PeakCount, ...] = get_args(PeakCount)
"""What a figure of memory counts: all that is in use on the device, what torch's caching allocator reserved,
or what it gave to tensors. The latter two lack the context of the driver and NCCL's buffers."""

LARGEST_SUBMODULE = 1 / 3
"""Share of a layer's parameters in its largest submodule: one of the three products of a gated MLP."""


FAR_BUFFERS = 1 / 3
"""Buffers of a group with one rank a node over those of a group inside nodes: 2 to 4 channels against 12 to
24 over NVLink, with 8 connections (a ring's 2, a tree's 6) where the latter have 2 or 3, of 10 MiB each (NCCL
2.18: 4 MiB of the Simple protocol, 4.7 of LL128, 0.5 of LL; NVIDIA/nccl, issues 964 and 1685)."""


@record()
class StageMemory:
    """Bytes of each part on each class of stage.

    ``parts[name]`` has shape (classes, plans), classes as in ``stages``.
    """

    parts: dict[str, np.ndarray]
    layout: Stages
    loss: LossMemory
    """What the loss holds as allocated; part "workspace" has what exceeds a recomputed layer."""
    flight: np.ndarray
    """Micro batches in flight (``in_flight``), shape (classes, plans)."""
    tiers: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """Bytes of a node's other tiers by tier and part, shape (classes, plans)."""
    copied: np.ndarray | float = 0.0
    """Bytes that the optimizer's step copies, shape (classes, plans); part "update" is what they take."""
    beyond: np.ndarray | float = 0.0
    """Bytes of the loss beyond a recomputed layer, shape (classes, plans)."""
    gradients: tuple[np.ndarray, ...] = ()
    """Of a layer of each kind, beside what it keeps (``Kept``), shape (plans,)."""
    outside: np.ndarray | float = 0.0
    """Bytes that torch's allocator knows nothing of, shape (classes, plans)."""
    fragmentation: float = 1.0
    """Reserved over allocated, of activations and workspace."""
    pool: np.ndarray | float = 0.0
    """Bytes that torch's allocator reserves for gathers alone (``_gather_pool``), shape (plans,)."""
    learned: float = 1.0
    """Measured over predicted peak at the user's site; totals and breakdowns have it, ``parts`` has not."""
    cached: np.ndarray | float = 0.0
    """Bytes that torch's allocator keeps while the device has room, shape (classes, plans): what the busiest
    rank of each layer holds beyond the fullest over all, and blocks that the loss freed. No part counts them,
    nor does the peak."""

    @cached_property
    def fixed(self) -> FixedMemory:
        """Bytes that do not depend on activations."""
        apart = (part for name, part in self.parts.items() if name not in ("activations", "update"))
        constant = sum(apart, -self.beyond * np.ones(self.present.shape))
        copied = np.asarray(self.copied) if np.any(self.copied) else None
        return FixedMemory(
            constant, self.parts["workspace"] - self.beyond, copied, self.present, self.learned
        )

    @property
    def present(self) -> np.ndarray:
        """Which classes of stage a plan has, shape (classes, plans)."""
        return self.layout.present

    @property
    def stages(self) -> np.ndarray:
        """Bytes of one device of each class of stage, shape (classes, plans); 0 where a plan lacks it."""
        return self.learned * np.where(self.present, sum(self.parts.values()), 0.0)

    def counted(self, what: PeakCount) -> np.ndarray:
        """Bytes of one device as some figure counts them, shape (classes, plans)."""
        reserved = self.stages + self.learned * np.where(self.present, self.cached, 0.0)
        if what == "device":
            return reserved
        passes = self.parts["activations"] + self.parts["workspace"]
        unused = self.pool + (1 - 1 / self.fragmentation) * (passes - self.pool)
        counted, unused = (self.stages, unused) if what == "allocated" else (reserved, 0.0)
        return counted - self.learned * np.where(self.present, self.outside + unused, 0.0)

    @property
    def peak(self) -> np.ndarray:
        """Bytes of the fullest device, shape (plans,)."""
        return self.stages.max(axis=0)

    def on_tier(self, tier: str) -> np.ndarray:
        """Bytes of the fullest node on a tier, shape (plans,)."""
        parts = self.tiers.get(tier, {}).values()
        stage_bytes = sum(parts, np.zeros(self.present.shape))
        return np.where(self.present, stage_bytes, 0.0).max(axis=0)

    def breakdown(self, index: int, row: int) -> dict[str, float]:
        """Bytes by part of one plan on one class of stage."""
        return {name: self.learned * float(part[row, index]) for name, part in self.parts.items()}


def memory(setting: Setting, plans: Plans, stages: Stages, counts: Parameters) -> StageMemory:
    """Predict the peak memory of each plan on each class of stage.

    Returns:
        Bytes, shape (classes, plans).
    """
    if setting.training.drawn is not None:
        setting = setting.longest
        counts = parameters(setting, plans, stages)
    setting = setting.of(plans)
    framework, shape = setting.framework, stages.index.shape
    sharding = Sharding(setting, plans)
    state = state_bytes(setting, sharding, counts)
    update = state.pop("update")
    moments = state["optimizer"]
    if setting.choices.states in PAGED_STATES:
        state["optimizer"] = np.zeros(shape)
    state["parameters"] = parameters_between_passes(sharding, counts, state["parameters"])
    kept_layers = kept_by_layers(setting, plans, stages.groups, counts.ops)
    flight = in_flight(setting, plans, stages)
    loss, pool = loss_memory(sharding, shape[0]), _gather_pool(sharding, counts)
    between, reopened = between_and_reopened(setting, plans, stages, kept_layers, flight)
    one_pass = between + reopened
    beyond = (with_loss(reopened, loss) - reopened) * framework.memory.fragmentation
    activations = one_pass + partner_bytes(setting, plans, stages, kept_layers)
    buffers = _buffers(setting, plans)
    parts = {
        **state,
        "activations": activations * framework.memory.fragmentation,
        "workspace": beyond + (_gathered(sharding, counts) * framework.memory.fragmentation + pool),
        "buffers": np.broadcast_to(buffers + _buckets(setting, plans), shape),
        "context": np.broadcast_to(framework.memory.context_bytes, shape),
    }
    tiers: dict[str, dict[str, np.ndarray]] = {}
    if placed(sharding):
        parts, tiers = _split_by_tier(sharding, parts, stages, kept_layers, flight)
        # Gradients of state that is updated elsewhere, or in sub-groups, have no 32-bit copy on the device.
        update = update * (1 - share_on(sharding, "optimizer"))
    if setting.choices.states in PAGED_STATES:
        tiers["host"] = tiers.get("host", {}) | {"optimizer": _devices_of_node(setting) * moments}
    parts = _with_tower_copies_and_graphs(sharding, stages, counts.ops, flight, parts)
    usage = StageMemory(
        parts,
        stages,
        loss,
        flight,
        tiers,
        copied=update,
        beyond=beyond,
        gradients=tuple(layer.gradients for layer in kept_layers),
        outside=framework.memory.context_bytes + buffers,
        fragmentation=framework.memory.fragmentation,
        pool=pool,
        learned=setting.site.memory.factor if setting.site else 1.0,
    )
    passes = parts["activations"] + beyond
    parts["update"] = usage.fixed.updating(passes, setting.cluster.device.memory_bytes)
    unused = np.minimum(cached_by_loss(sharding, shape[0]), beyond)
    if setting.over_layers is not setting:
        unused = unused + _kept_for_busiest(usage, setting, plans, counts, one_pass)
    if not unused.any():
        return usage
    room = setting.cluster.device.memory_bytes - usage.stages
    return replace(usage, cached=np.clip(unused, 0.0, room.clip(0)))


def _kept_for_busiest(
    usage: StageMemory, setting: Setting, plans: Plans, counts: Parameters, over_layers: np.ndarray
) -> np.ndarray:
    """Bytes that the busiest ranks of each layer hold beyond activations ``over_layers``."""
    busiest = kept_by_busiest(setting, plans, usage.layout.groups, counts.ops)
    activations = sum(between_and_reopened(setting, plans, usage.layout, busiest, usage.flight))
    return (activations - over_layers) * usage.fragmentation


def _with_tower_copies_and_graphs(
    sharding: Sharding, stages: Stages, ops: ModelOps, flight: np.ndarray, parts: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Parts with a vision tower, narrow copies of weights, and CUDA graphs; B, shape (classes, plans)."""
    setting, parts = sharding.setting, dict(parts)
    if setting.training.images:
        weights, kept_by_tower = tower_memory(setting, sharding.plans, ops, flight)
        parts["parameters"] = parts["parameters"] + weights
        parts["activations"] = parts["activations"] + kept_by_tower * setting.framework.memory.fragmentation
    copies = narrow_copies(sharding, stages, ops)
    if copies.any():
        parts["parameters"] = parts["parameters"] + copies
    graphs = graph_bytes(stages, ops, parts)
    return parts | {"graphs": graphs} if graphs.any() else parts


def _split_by_tier(
    sharding: Sharding,
    parts: dict[str, np.ndarray],
    stages: Stages,
    kept_layers: Iterable[Kept],
    flight: np.ndarray,
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """What stays on the device of each part, and what lies on host and SSDs of a node, by tier and part.

    Bytes, shape (classes, plans); a node's are those of its devices, as if all were of one class of stage.
    A layer is recomputed on the device: activations that leave are those kept between the passes, except what
    a pass uses and what is copied meanwhile (``_in_transit``).
    """
    setting, devices = sharding.setting, _devices_of_node(sharding.setting)
    reopened = held_activations(setting, sharding.plans, stages, kept_layers, np.zeros(stages.index.shape))
    reopened = reopened * setting.framework.memory.fragmentation
    parts = parts | {"activations": parts["activations"] - reopened}
    here, tiers = dict(parts), {tier: {} for tier in ("host", "nvme", "file_system")}
    for kind in STATE_CLASSES:
        # The 32-bit weights may stay where only the moments leave.
        leaves = moments_share(sharding) if kind == "optimizer" else 1.0
        here[kind] = parts[kind] * (1 - share_on(sharding, kind) * leaves)
        for tier, stored in tiers.items():
            share = share_on(sharding, kind, tier) * leaves
            if share.any():
                stored[kind] = devices * share * parts[kind]
    leaving = parts["activations"] - here["activations"]
    here["activations"] = here["activations"] + _in_transit(sharding, stages, flight) * leaving + reopened
    return here, {tier: stored for tier, stored in tiers.items() if stored}


def _in_transit(sharding: Sharding, stages: Stages, flight: np.ndarray) -> np.ndarray:
    """Share of the activations off the device that are on it all the same, shape (classes, plans).

    A pass holds the unit that it computes and those that are copied ahead. Between passes of a pipeline the
    unit is a chunk, and a forward pass runs beside a backward pass: Megatron-Kwai holds the chunk computed
    last, the one before it until its copy has ended, and two buffers of chunks that come back (schedules.py:
    schedule_1f1b_offload; offload.py: onload_prologue, at 6c1ff86). Elsewhere the unit is a layer.
    """
    plans = sharding.plans
    units = 1 + units_ahead(sharding, "activations")
    piped = units * 2 / plans.virtual_pipeline
    micro_batches_held = np.where(plans.pipeline > 1, piped, units / np.maximum(stages.total, 1))
    return np.minimum(micro_batches_held / np.maximum(flight, 1e-9), 1.0)


def _devices_of_node(setting: Setting) -> int:
    return min(setting.cluster.devices, setting.cluster.devices_per_node)


def least_memory(
    setting: Setting,
    plans: Plans,
    stages: Stages,
    counts: Parameters,
    leaving: Iterable[str] = (),
    layers: Iterable[Kept] | None = None,
    zero: int = 3,
) -> np.ndarray:
    """Lower bound of each plan's peak over all kinds of sharding: its own ``zero`` and group are not read.

    All states are sharded over all ranks that share them, and nothing is gathered; the classes of
    ``leaving`` may lie off the device. ``layers`` are what a layer of each kind keeps, by default that of
    the plans; ``zero`` is the highest kind of sharding.

    Returns:
        Bytes of the fullest device, shape (plans,).
    """
    setting = setting.of(plans)
    framework = setting.framework
    resharded = replace(
        plans, zero=np.full(len(plans), zero), shard_group=np.zeros(len(plans), dtype=np.int64)
    )
    state = state_bytes(setting, Sharding(setting, resharded), counts)
    if layers is None:
        layers = kept_by_layers(setting, plans, stages.groups, counts.ops)
    unsharded = replace(plans, zero=np.zeros_like(plans.zero))
    loss = loss_memory(Sharding(setting, unsharded), len(stages.index))
    passes = held_activations(setting, plans, stages, layers, loss=loss)
    if setting.choices.states in PAGED_STATES:
        leaving = (*leaving, "optimizer")
    staying = [state[kind] for kind in ("parameters", "gradients", "optimizer") if kind not in leaving]
    occupied = sum(staying) + passes * framework.memory.fragmentation
    fullest = np.where(stages.present, occupied, 0.0).max(axis=0)
    learned = setting.site.memory.factor if setting.site else 1.0
    beside = _buffers(setting, plans) + _buckets(setting, plans) + framework.memory.context_bytes
    return (fullest + beside) * learned


def state_bytes(setting: Setting, sharding: Sharding, counts: Parameters) -> dict[str, np.ndarray]:
    """Parameters, gradients and Adam's two moments with the 32-bit master copy (Rajbhandari et al. 2020).

    "update" is the further memory that the optimizer's step allocates.
    """
    dense = _bytes_per_parameter(setting, sharding, experts=False)
    parts = {name: counts.dense * each for name, each in dense.items()}
    if counts.experts.any():
        for name, each in _bytes_per_parameter(setting, sharding, experts=True).items():
            parts[name] += counts.experts * each
    if setting.choices.update_in_backward:
        largest = _largest_tensor(setting, sharding.plans, counts)
        at_once = np.minimum(parts["gradients"], setting.gradient_bytes * largest)
        parts["gradients"] = np.where(micro_batches(setting, sharding.plans) > 1, parts["gradients"], at_once)
    return parts


def _bytes_per_parameter(setting: Setting, sharding: Sharding, experts: bool) -> dict[str, np.ndarray]:
    """Bytes of state of one parameter of a device before data-parallel sharding, shape (plans,)."""
    trained, adapter, width = setting.trained, setting.training.adapter, setting.parameter_bytes
    if adapter is not None:
        width = width * trained + BASE_BYTES[adapter.base] * (1 - trained)
    parameters = width / sharding.pieces("parameters", experts)
    if sharding.copies.any():
        second = sharding.group("parameters", experts, copy=True).shard
        parameters = parameters + sharding.copies * width / second
    gradients = setting.gradient_bytes * trained / sharding.pieces("gradients", experts)
    if setting.choices.unsharded_gradients or setting.framework.gradients.once_in_pipelines:
        unsharded = sharding.unsharded(micro_batches(setting, sharding.plans))
        # The last micro batch frees the unsharded gradients of a layer as it allocates the sharded ones
        # (torch, _fsdp_param_group.py: post_backward).
        gradients = np.maximum(gradients, unsharded * setting.choices.reduce_bytes * trained)
    owned = trained / sharding.pieces("optimizer", experts)
    kept_apart = outer_bytes(sharding) if synchronised_apart(sharding) else 0
    return {
        "parameters": parameters,
        "gradients": gradients,
        "optimizer": (setting.optimizer_bytes + kept_apart) * owned,
        "update": setting.framework.memory.optimizer_gradient_bytes * owned,
    }


def _largest_tensor(setting: Setting, plans: Plans, counts: Parameters) -> np.ndarray:
    """Parameters of the largest tensor of a device, shape (plans,)."""
    return np.maximum(counts.largest_layer * LARGEST_SUBMODULE, table_parameters(setting, plans))


def _gathered(sharding: Sharding, counts: Parameters) -> np.ndarray:
    """Bytes of the whole parameters and gradients that full sharding holds during a pass; else 0.

    A framework that wraps whole layers holds two layers (one in use, one prefetched) and the gradients of
    one; frozen weights are gathered in their format and have no gradients. A framework that gathers each
    submodule holds the largest submodule, the prefetched parameters and a bucket of gradients, which
    ``bucket_bytes`` counts. A schedule whose micro batches share gathers holds whole chunks: shape (classes,
    plans), else (plans,).
    """
    setting, plans = sharding.setting, sharding.plans
    gathers, largest = setting.framework.gathers, counts.largest_layer
    width = gathers.bytes * sharding.gathered_share
    unit = 2 * width + setting.choices.reduce_bytes * setting.trained
    if gathers.a_layer > 1:
        gathered = (largest * LARGEST_SUBMODULE + np.minimum(largest, gathers.prefetch_parameters)) * width
    else:
        gathered = largest * unit
        if setting.model.tied_embeddings:
            gathered = gathered + table_parameters(setting, plans) * gathers.bytes
    shared = gathered_together(plans, micro_batches(setting, plans)) > 1
    if shared.any():
        gathered = np.where(shared, counts.total / plans.virtual_pipeline * unit, gathered)
    return np.where(sharding.parameters, gathered, 0.0)


def _gather_pool(sharding: Sharding, counts: Parameters) -> np.ndarray:
    """Bytes of the buffers that units are gathered into before they are copied out, shape (plans,).

    The allocator keeps them for the stream of the gathers (torch, _fsdp_collectives.py: foreach_all_gather).
    Forward, the buffer of a unit is freed once the next one's is allocated (_fsdp_param_group.py:
    wait_for_unshard): the largest unit and a layer.
    """
    setting, plans = sharding.setting, sharding.plans
    gathers = setting.framework.gathers
    if not gathers.copied_out:
        return np.zeros(len(plans))
    layer = counts.largest_layer * sharding.gathered_share
    units = np.maximum(layer, table_parameters(setting, plans)) + layer
    return np.where(sharding.parameters, units * gathers.bytes, 0.0)


def _buffers(setting: Setting, plans: Plans) -> np.ndarray:
    """Communication buffers of a device, B, shape (plans,): each group of several ranks has its own.

    Beside the groups of the degrees, programs open one of the ranks of a model (the norm of its gradients),
    and one of all ranks (barriers) unless it is that of the replicas (torch, device_mesh.py: init_device_mesh
    takes the default group). A group with one rank a node has fewer channels (``FAR_BUFFERS``).
    """
    node = setting.cluster.devices_per_node
    inner, model = plans.tensor * plans.context, plans.tensor * plans.pipeline
    strides = {
        "tensor": (plans.tensor, 1),
        "context": (plans.context, plans.tensor),
        "expert": (plans.expert, plans.tensor),
        "data": (plans.context * plans.data, plans.tensor),
        "pipeline": (plans.pipeline, inner * plans.data),
        "model": (model, np.where(plans.tensor > 1, 1, inner * plans.data)),
        "all": (np.where(model > 1, model * plans.context * plans.data, 1), 1),
    }
    groups = np.zeros(len(plans))
    for ranks, stride in strides.values():
        groups = groups + np.where(ranks > 1, np.where(stride < node, 1.0, FAR_BUFFERS), 0.0)
    return groups * setting.framework.memory.buffer_bytes_per_group


def _buckets(setting: Setting, plans: Plans) -> np.ndarray:
    """Flat buckets of gradients and parameters, where they are extra memory."""
    return setting.framework.memory.bucket_bytes * (plans.data > 1)
