"""Peak memory of a training step on one device, part by part, over arrays of plans.

Activations follow Korthikanti et al. 2022, section 4, tensor by tensor: what autograd keeps for the backward
pass of each kernel that ``simulator.ops`` lists. The schedule says how many micro batches are in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.layout.model_ops import LeverOps, ModelOps
from simulator.layout.parameters import Parameters, head_share
from simulator.layout.stages import FIRST, Stages, by_schedule, gathered_together
from simulator.models import LayerKind, Model
from simulator.ops.ends import padded_vocabulary
from simulator.plan import FULL, SELECTIVE, Plans
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.state.adapter import BASE_BYTES
from simulator.state.place import STATE_CLASSES
from simulator.training.counts import micro_batches
from simulator.training.modules import frees, repeats
from simulator.training.outer import outer_bytes, synchronised_apart
from simulator.training.placement_shares import moments_share, placed, share_on
from simulator.training.sharding import Sharding

LOGIT_BYTES = {
    "fused": 4,
    "fused-32": 8,
    "native": 8,
    "eager": 8,
    "torch": 12,
    "torch-held": 16,
    "torch-16": 8,
    "chunked": 12,
    "log-probabilities": 14,
}
"""Bytes per logit at the peak of the loss: the 16-bit logits and their gradient; eager and native hold the
32-bit probabilities, which become the gradient in place, beside them, and fused-32 the 32-bit logits; torch
holds log-probabilities and two gradients of 32 bits, and where the caller keeps them (torch-held: a loop
that frees neither logits nor their 32-bit copy; torchtitan deletes them) 16-bit logits and their gradient
beside 32-bit logits, log-probabilities and one gradient; torch-16 holds the logits, log-probabilities and two
gradients of 16 bits; log-probabilities 16-bit logits and three 32-bit values."""

CHUNKED = "chunked", "log-probabilities"
"""Losses that hold the logits of a piece of the sequence."""

LOSS_CHUNK = 1024
"""Tokens whose logits a chunked loss holds at once. Defaults are of this order (Liger, TRL, prime-rl: 256 to
2,048)."""


LARGEST_SUBMODULE = 1 / 3
"""Share of a layer's parameters in its largest submodule: one of the three products of a gated MLP."""


class Kept(NamedTuple):
    """Bytes that one layer keeps of one micro batch, shape (plans,).

    ``between_passes`` live from the forward pass to the backward pass; ``reopened`` are recomputed
    just before the backward pass, or allocated in it.
    """

    between_passes: np.ndarray
    reopened: np.ndarray


@dataclass
class StageMemory:
    """Bytes of each part on each class of stage.

    ``parts[name]`` has shape (classes, plans), classes as in ``stages``.
    """

    parts: dict[str, np.ndarray]
    layout: Stages
    tiers: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    """Bytes of a node's other tiers by tier and part, shape (classes, plans)."""
    copied: np.ndarray | float = 0.0
    """Bytes that the optimizer's step copies, shape (classes, plans); part "update" is what they take."""
    learned: float = 1.0
    """Measured over predicted peak at the user's site; totals and breakdowns have it, ``parts`` has not."""

    def updating(self, activations: np.ndarray, capacity: float) -> np.ndarray:
        """Bytes that the optimizer's step takes beside activations and all else, shape (..., classes, plans).

        The optimizer copies gradients after activations are freed. The caching allocator keeps their memory
        reserved and allocates more, until the device is full; then it returns the cached blocks.
        """
        room = capacity - (self._standing + activations)
        freed = activations + self.parts["workspace"]
        return np.clip(room, np.maximum(self.copied - freed, 0.0), self.copied)

    def peak_with(self, activations: np.ndarray, capacity: float) -> np.ndarray:
        """Bytes of the fullest device with other activations, shape (..., plans).

        Args:
            activations: bytes as allocated, shape (..., classes, plans).
            capacity: memory of a device, B.
        """
        held = self._standing + activations + self.updating(activations, capacity)
        return self.learned * np.where(self.present, held, 0.0).max(axis=-2)

    @cached_property
    def _standing(self) -> np.ndarray:
        """Bytes that do not depend on activations, shape (classes, plans)."""
        return sum(
            (part for name, part in self.parts.items() if name not in ("activations", "update")),
            np.zeros(self.present.shape),
        )

    @property
    def present(self) -> np.ndarray:
        """Which classes of stage a plan has, shape (classes, plans)."""
        return self.layout.present

    @property
    def stages(self) -> np.ndarray:
        """Bytes of one device of each class of stage, shape (classes, plans); 0 where a plan lacks it."""
        return self.learned * np.where(self.present, sum(self.parts.values()), 0.0)

    @property
    def peak(self) -> np.ndarray:
        """Bytes of the fullest device, shape (plans,)."""
        return self.stages.max(axis=0)

    def on_tier(self, tier: str) -> np.ndarray:
        """Bytes of the fullest node on a tier, shape (plans,)."""
        parts = self.tiers.get(tier, {}).values()
        whole = sum(parts, np.zeros(self.present.shape))
        return np.where(self.present, whole, 0.0).max(axis=0)

    def breakdown(self, index: int, row: int) -> dict[str, float]:
        """Bytes by part of one plan on one class of stage."""
        return {name: self.learned * float(part[row, index]) for name, part in self.parts.items()}


def memory(setting: Setting, plans: Plans, stages: Stages, counts: Parameters) -> StageMemory:
    """Predict the peak memory of each plan on each class of stage.

    Returns:
        Bytes, shape (classes, plans).
    """
    setting = setting.of(plans)
    framework, shape = setting.framework, stages.index.shape
    sharding = Sharding(setting, plans)
    state = state_bytes(setting, sharding, counts)
    update = state.pop("update")
    kept = kept_by_layers(setting, plans, stages.groups, counts.ops)
    held = held_activations(setting, plans, stages, kept)
    parts = {
        **state,
        "activations": held * framework.memory.fragmentation,
        "workspace": _workspace(setting, plans, stages, counts) * framework.memory.fragmentation,
        "buffers": np.broadcast_to(_buffers(setting, plans), shape),
        "context": np.full(shape, framework.memory.context_bytes),
    }
    tiers: dict[str, dict[str, np.ndarray]] = {}
    if placed(sharding):
        # What leaves is kept between the passes: a layer is recomputed on the device.
        reopened = held_activations(setting, plans, stages, kept, np.zeros(shape))
        reopened = reopened * framework.memory.fragmentation
        parts, tiers = _split_by_tier(sharding, parts | {"activations": parts["activations"] - reopened})
        parts["activations"] = parts["activations"] + reopened
        # Gradients of state that is updated elsewhere, or in sub-groups, have no 32-bit copy on the device.
        update = update * (1 - share_on(sharding, "optimizer"))
    learned = setting.site.memory.factor if setting.site else 1.0
    found = StageMemory(parts, stages, tiers, update, learned)
    parts["update"] = found.updating(parts["activations"], setting.cluster.device.memory_bytes)
    return found


def _split_by_tier(
    sharding: Sharding, parts: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """What stays on the device of each part, and what lies on host and SSDs of a node, by tier and part.

    Bytes, shape (classes, plans); a node's are those of its devices, as if all were of one class of stage.
    """
    cluster = sharding.setting.cluster
    devices = min(cluster.devices, cluster.devices_per_node)
    here, tiers = dict(parts), {tier: {} for tier in ("host", "nvme", "file_system")}
    for kind in STATE_CLASSES:
        # The 32-bit weights may stay where only the moments leave.
        leaves = moments_share(sharding) if kind == "optimizer" else 1.0
        here[kind] = parts[kind] * (1 - share_on(sharding, kind) * leaves)
        for tier, held in tiers.items():
            share = share_on(sharding, kind, tier) * leaves
            if share.any():
                held[kind] = devices * share * parts[kind]
    return here, {tier: held for tier, held in tiers.items() if held}


def least_memory(
    setting: Setting, plans: Plans, stages: Stages, counts: Parameters, leaving: Iterable[str] = ()
) -> np.ndarray:
    """Lower bound of each plan's peak over all kinds of sharding: ``zero`` and ``shard_group`` are not read.

    All states are sharded over all ranks that share them, and nothing is gathered; the classes of
    ``leaving`` may lie off the device.

    Returns:
        Bytes of the fullest device, shape (plans,).
    """
    setting = setting.of(plans)
    framework = setting.framework
    whole = replace(plans, zero=np.full(len(plans), 3), shard_group=np.zeros(len(plans), dtype=np.int64))
    state = state_bytes(setting, Sharding(setting, whole), counts)
    passes = _activations(setting, plans, stages, counts.ops) + _logits(setting, plans, len(stages.index))
    kept = [state[kind] for kind in ("parameters", "gradients", "optimizer") if kind not in leaving]
    held = sum(kept) + passes * framework.memory.fragmentation
    fullest = np.where(stages.present, held, 0.0).max(axis=0)
    learned = setting.site.memory.factor if setting.site else 1.0
    return (fullest + _buffers(setting, plans) + framework.memory.context_bytes) * learned


def state_bytes(setting: Setting, sharding: Sharding, counts: Parameters) -> dict[str, np.ndarray]:
    """Parameters, gradients and Adam's two moments with the 32-bit master copy (Rajbhandari et al. 2020).

    "update" is the further memory that the optimizer's step allocates.
    """
    framework = setting.framework
    width, optimizer, gradient = setting.parameter_bytes, setting.optimizer_bytes, setting.gradient_bytes
    whole = sharding.unsharded(micro_batches(setting, sharding.plans))
    parts = {
        name: np.zeros(counts.dense.shape) for name in ("parameters", "gradients", "optimizer", "update")
    }
    trained, adapter = setting.trained, setting.training.adapter
    if adapter is not None:
        width = width * trained + BASE_BYTES[adapter.base] * (1 - trained)
    kept_apart = outer_bytes(sharding) if synchronised_apart(sharding) else 0
    over = {kind: sharding.groups(kind) for kind in ("parameters", "gradients", "optimizer")}
    second = sharding.groups("parameters", copy=True)
    for number, count in enumerate((counts.dense, counts.experts)):
        shard = {kind: groups[number].shard for kind, groups in over.items()}
        parts["parameters"] += width * count / np.where(sharding.parameters, shard["parameters"], 1)
        if sharding.copies.any():
            parts["parameters"] += sharding.copies * width * count / second[number].shard
        parts["gradients"] += gradient * trained * count / np.where(sharding.gradients, shard["gradients"], 1)
        parts["gradients"] += whole * setting.choices.reduce_bytes * trained * count
        owned = trained * count / np.where(sharding.optimizer, shard["optimizer"], 1)
        parts["optimizer"] += (optimizer + kept_apart) * owned
        parts["update"] += framework.memory.optimizer_gradient_bytes * owned
    return parts


def kept_by_layers(setting: Setting, plans: Plans, groups: Iterable[LayerKind], ops: ModelOps) -> list[Kept]:
    """What one layer of each kind keeps of one micro batch, read off its list of ops."""
    found = []
    for number, kind in enumerate(groups):
        every = zip(*(_saved(part, number, kind) for part in ops.by_levers), strict=True)
        whole, core, passing = (ops.gathered(sizes)[ops.index] for sizes in every)
        kept = _kept(setting, plans, kind, whole, core)
        found.append(Kept(kept.between_passes, kept.reopened + passing))
    return found


def _saved(part: LeverOps, number: int, kind: LayerKind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes that autograd keeps of one layer, all and those that selective recomputation discards.

    The third are those that the backward pass of one op allocates at most beside them.
    """
    named = part.setting.choices.recompute_modules
    names = ("core_attn",) if named is None else named
    whole, core, passing = np.zeros((3, len(part.plans)))
    for op in part.layers[number]:
        whole = whole + op.kept
        passing = np.maximum(passing, op.passing)
        if frees(op, names, kind.experts):
            core = core + op.kept
        elif repeats(op, names, kind.experts):
            core = core + op.intermediate
    return whole, core, passing


def _kept(setting: Setting, plans: Plans, kind: LayerKind, whole: np.ndarray, core: np.ndarray) -> Kept:
    """Bytes under the plan's recomputation, from all and those that selective recomputation discards."""
    model, width = setting.model, setting.width
    tokens, t = setting.tokens(plans), plans.tensor
    boundary = boundary_bytes(setting, plans)
    named = (plans.recompute_modules >= 0) | (setting.choices.recompute_modules is not None)
    selective = whole - core
    if setting.framework.selective == "all-but-projections":
        projected = model.query_width + 2 * model.kv_width + model.hidden
        selective = np.where(named, selective, boundary + width * tokens * projected / t)
    if setting.framework.selective == "every-other-product":
        result = _every_other_result(model, kind.experts)
        selective = np.where(named, selective, boundary + width * tokens * result / t)
    full, partly = plans.recompute == FULL, plans.recompute == SELECTIVE
    kept = np.where(full, boundary, np.where(partly, selective, whole))
    return Kept(kept, np.where(full, whole, np.where(partly, whole - selective, 0.0)))


def boundary_bytes(setting: Setting, plans: Plans) -> np.ndarray:
    """Bytes of a layer's input on one device, shape (plans,)."""
    spread = np.where(plans.sequence_parallel, plans.tensor, 1)
    return setting.width * setting.tokens(plans) * setting.model.hidden / spread


def _activations(setting: Setting, plans: Plans, stages: Stages, ops: ModelOps) -> np.ndarray:
    """Activations held at the peak, shape (classes, plans)."""
    return held_activations(setting, plans, stages, kept_by_layers(setting, plans, stages.groups, ops))


def held_activations(
    setting: Setting, plans: Plans, stages: Stages, kept: Iterable[Kept], flight: np.ndarray | None = None
) -> np.ndarray:
    """Activations held at the peak: those in flight, and one recomputed layer.

    Args:
        setting: what the plans share.
        plans: the plans.
        stages: their layers.
        kept: what one layer of each kind keeps, shape (..., plans).
        flight: micro batches in flight (``in_flight``), where known.

    Returns:
        Bytes, shape (..., classes, plans).
    """
    flight = in_flight(setting, plans, stages) if flight is None else flight
    held, reopened = (np.zeros(stages.index.shape) for _ in range(2))
    for number, layer in enumerate(kept):
        layers = stages.layers[:, number]
        between, again = (np.expand_dims(np.asarray(part), -2) for part in layer)
        held = held + flight * layers * between
        alone = len(stages.groups) == 1
        reopened = np.maximum(reopened, np.where((layers > 0) | alone, again, 0.0))
    held = held + reopened
    if setting.dropout:
        held[..., FIRST, :] += flight[FIRST] * boundary_bytes(setting, plans) / 2
    return held


def _every_other_result(model: Model, experts: bool) -> float:
    """Elements that a layer keeps of each token where every other product is repeated.

    The results of attention and of the query, value, gate and down products; of routed experts, whose
    products are all repeated, what is sent to them and back.
    """
    down = model.hidden if model.gated else 0
    inner = model.feed_forward + down
    if experts and model.moe:
        moe = model.moe
        shared = moe.shared_experts * moe.shared_feed_forward + (down if moe.shared_experts else 0)
        inner = shared + 2 * moe.top_k * (moe.latent or model.hidden)
    return 2 * model.query_width + model.kv_width + inner


def in_flight(setting: Setting, plans: Plans, stages: Stages) -> np.ndarray:
    """Micro batches whose activations a stage of each class holds at the peak, shape (classes, plans)."""
    m = micro_batches(setting, plans)
    stage = np.where(stages.present, stages.index, np.minimum(1, plans.pipeline - 1))
    held = np.zeros(stage.shape)
    for name, chosen in plans.by_schedule:
        held[:, chosen] = get_schedule(name).in_flight(
            plans.pipeline[chosen], m[chosen], plans.virtual_pipeline[chosen], stage[:, chosen]
        )
    return held


def _workspace(setting: Setting, plans: Plans, stages: Stages, counts: Parameters) -> np.ndarray:
    """Logits and their gradient on stages with the loss, and the parameters that full sharding gathers."""
    sharded = Sharding(setting, plans).parameters
    gathered = np.where(sharded, _gathered(setting, plans, counts), 0.0)
    return _logits(setting, plans, len(stages.index)) + gathered


def _logits(setting: Setting, plans: Plans, classes: int) -> np.ndarray:
    """Logits and their gradient on stages with the loss, B, shape (classes, plans)."""
    t = plans.tensor
    tokens = setting.tokens(plans)
    if setting.choices.cross_entropy in CHUNKED:
        tokens = np.minimum(tokens, LOSS_CHUNK)
    held = padded_vocabulary(setting.model, t) / np.where(setting.framework.kernels.gathers_by_product, 1, t)
    logits = LOGIT_BYTES[setting.choices.cross_entropy] * tokens * held
    # Until a barrier is passed a rank keeps its part of the logits, and begins those of the next one.
    kept = 1 + by_schedule(plans, lambda schedule: schedule.output_barriers)
    return head_share(plans, classes) * kept * logits


def _gathered(setting: Setting, plans: Plans, counts: Parameters) -> np.ndarray:
    """Bytes of the whole parameters and gradients that full sharding holds during a pass.

    A framework that wraps whole layers holds two layers (one in use, one prefetched) and the gradients of
    one. A framework that gathers each submodule holds the largest submodule, the prefetched parameters and a
    bucket of gradients, which ``bucket_bytes`` counts. A schedule whose micro batches share gathers holds
    whole chunks.
    """
    framework, largest = setting.framework, counts.largest_layer
    if framework.gathers.a_layer > 1:
        held = (
            largest * LARGEST_SUBMODULE + np.minimum(largest, framework.gathers.prefetch_parameters)
        ) * framework.gathers.bytes
    else:
        held = largest * (2 * framework.gathers.bytes + setting.choices.reduce_bytes)
    shared = gathered_together(plans, micro_batches(setting, plans)) > 1
    chunk = counts.total / plans.virtual_pipeline
    return np.where(shared, chunk * (2 * framework.gathers.bytes + setting.choices.reduce_bytes), held)


def _buffers(setting: Setting, plans: Plans) -> np.ndarray:
    """Communication buffers: each process group that spans more than one rank has its own."""
    groups = sum(
        (degree > 1).astype(float) for degree in (plans.tensor, plans.pipeline, plans.context, plans.expert)
    )
    groups = groups + (plans.data * plans.context > 1)
    return (
        groups * setting.framework.memory.buffer_bytes_per_group
        + setting.framework.memory.bucket_bytes * (plans.data > 1)
    )
