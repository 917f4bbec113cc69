"""Peak memory of a training step on one device, part by part, over arrays of plans.

Activations follow Korthikanti et al. 2022, section 4, tensor by tensor: what autograd keeps for the backward
pass of each kernel that ``simulator.ops`` lists. The schedule says how many micro batches are in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.layout.stages import Parameters, Stages, by_schedule, gathered_together, head_share
from simulator.models import Model
from simulator.ops.build import LOW_PRECISION
from simulator.ops.ends import padded_vocabulary
from simulator.plan import FULL, SELECTIVE, Plans
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.training import KINDS, micro_batches
from simulator.training.sharding import Sharding

LOGIT_BYTES = {"fused": 4, "eager": 8, "torch": 12}
"""Bytes per logit at the peak of the loss: the 16-bit logits and their gradient; eager holds the 32-bit
probabilities, which become the gradient in place, beside them; torch holds log-probabilities and two
gradients of 32 bits."""


@dataclass
class Memory:
    """Bytes of each part on each kind of stage.

    ``parts[name]`` has shape (kinds, plans), kinds as in ``KINDS``.
    """

    parts: dict[str, np.ndarray]
    present: np.ndarray

    @property
    def stages(self) -> np.ndarray:
        """Bytes of one device of each kind of stage, shape (kinds, plans); 0 where a plan lacks it."""
        return np.where(self.present, sum(self.parts.values()), 0.0)

    @property
    def peak(self) -> np.ndarray:
        """Bytes of the fullest device, shape (plans,)."""
        return self.stages.max(axis=0)

    def breakdown(self, index: int, kind: str) -> dict[str, float]:
        """Bytes by part of one plan on one kind of stage."""
        row = KINDS.index(kind)
        return {name: float(part[row, index]) for name, part in self.parts.items()}


def memory(setting: Setting, plans: Plans, stages: Stages, counts: Parameters) -> Memory:
    """Predict the peak memory of each plan on each kind of stage.

    Returns:
        Bytes, shape (kinds, plans).
    """
    per_kind = [_stage(setting, plans, stages, counts, kind) for kind in KINDS]
    p = plans.pipeline
    present = np.stack([p >= 1, p > 2, p > 1])
    parts = {name: np.stack([part[name] for part in per_kind]) for name in per_kind[0]}
    return Memory(parts, present)


def _stage(
    setting: Setting, plans: Plans, stages: Stages, counts: Parameters, kind: str
) -> dict[str, np.ndarray]:
    framework = setting.framework
    layers = getattr(stages, kind)
    state = _state(setting, plans, counts, kind)
    update = state.pop("update")
    parts = {
        **state,
        "activations": _activations(setting, plans, layers, kind) * framework.fragmentation,
        "workspace": _workspace(setting, plans, counts, kind) * framework.fragmentation,
        "buffers": _buffers(setting, plans),
        "context": np.full(len(plans), framework.context_bytes),
    }
    # The optimizer copies gradients when activations are gone. The caching allocator keeps what those took,
    # and takes more, until the device is full; then it gives it back.
    room = setting.cluster.device.memory_bytes - sum(parts.values())
    freed = parts["activations"] + parts["workspace"]
    return {**parts, "update": np.clip(room, np.maximum(update - freed, 0.0), update)}


def _state(setting: Setting, plans: Plans, counts: Parameters, kind: str) -> dict[str, np.ndarray]:
    """Parameters, gradients and Adam's two moments with the 32-bit master copy (Rajbhandari et al. 2020).

    "update" is what the optimizer's step takes beside them.
    """
    framework, mixed = setting.framework, setting.training.mixed
    separate = mixed and framework.separate_master
    width = setting.width if separate or not mixed else 4
    optimizer = 12 if separate else 8
    gradient = framework.gradient_bytes + framework.working_gradient_bytes
    parts = {name: np.zeros(len(plans)) for name in ("parameters", "gradients", "optimizer", "update")}
    sharding = Sharding(setting, plans)
    for count, shard in (
        (counts.dense[kind], sharding.dense.shard),
        (counts.experts[kind], sharding.experts.shard),
    ):
        parts["parameters"] += width * count / np.where(sharding.parameters, shard, 1)
        parts["gradients"] += gradient * count / np.where(sharding.gradients, shard, 1)
        owned = count / np.where(sharding.optimizer, shard, 1)
        parts["optimizer"] += optimizer * owned
        parts["update"] += framework.optimizer_gradient_bytes * owned
    return parts


def _layer_activations(setting: Setting, plans: Plans) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that one layer keeps for one micro batch: all of them, and those of the attention core."""
    model, training, framework = setting.model, setting.training, setting.framework
    t, width = plans.tensor, setting.width
    tokens = setting.tokens(plans)
    spread = np.where(plans.sequence_parallel, t, 1)
    narrow = 1 if training.precision in LOW_PRECISION else width
    mask = 1 if setting.dropout else 0
    h, gates = model.hidden, 2 if model.gated else 1

    core = np.zeros(len(plans))
    heads = model.heads / t
    if framework.attention != "unfused":
        core = core + 4 * heads
    else:
        core = core + heads * training.seq_len * (width + (width + 1) * mask)
    qkv = (model.query_width + 2 * np.maximum(model.kv_width, model.head_dim * t)) / t
    attention = (width * h + narrow * h + mask * h) / spread + width * qkv + narrow * model.value_width / t

    share = model.moe_layers / model.layers
    extra = 1 if model.gated and framework.elementwise == "eager" else 0
    inner = width * (gates + extra) + narrow
    around = (width * h + narrow * h + mask * h) / spread
    mlp = (1 - share) * (around + inner * model.feed_forward / t)
    if model.moe:
        moe = model.moe
        copies = moe.top_k / t
        routed = copies * (plans.expert_tensor * narrow * h + inner * moe.feed_forward)
        shared = inner * moe.shared_experts * moe.shared_feed_forward / t
        mlp = mlp + share * (around + routed + shared)
    return tokens * (attention + core + mlp), tokens * core


def _activations(setting: Setting, plans: Plans, layers: np.ndarray, kind: str) -> np.ndarray:
    """Activations held at the peak: those in flight, and one layer opened again under full recomputation."""
    model = setting.model
    t, width = plans.tensor, setting.width
    tokens = setting.tokens(plans)
    whole, core = _layer_activations(setting, plans)
    boundary = width * tokens * model.hidden / np.where(plans.sequence_parallel, t, 1)
    selective = whole - core
    if setting.framework.selective == "all-but-projections":
        projected = model.query_width + 2 * model.kv_width + model.hidden
        selective = boundary + width * tokens * projected / t
    if setting.framework.selective == "every-other-product":
        selective = boundary + width * tokens * _every_other_result(model) / t
    choice = [plans.recompute == FULL, plans.recompute == SELECTIVE]
    kept = np.select(choice, [boundary, selective], whole)
    reopened = np.select(choice, [whole, whole - selective], 0.0)
    flight = _in_flight(setting, plans, kind)
    held = flight * layers * kept + reopened
    if kind == "first" and setting.dropout:
        held = held + flight * boundary / 2
    return held


def _every_other_result(model: Model) -> float:
    """Elements that a layer keeps of each token where every other product is repeated.

    The results of attention and of the query, value, gate and down products; of routed experts, whose
    products are all repeated, what is sent to them and back.
    """
    share = model.moe_layers / model.layers
    down = model.hidden if model.gated else 0
    inner = (1 - share) * (model.feed_forward + down)
    if model.moe:
        moe = model.moe
        shared = moe.shared_experts * moe.shared_feed_forward + (down if moe.shared_experts else 0)
        inner += share * (shared + 2 * moe.top_k * model.hidden)
    return 2 * model.query_width + model.kv_width + inner


def _in_flight(setting: Setting, plans: Plans, kind: str) -> np.ndarray:
    """Micro batches whose activations a stage of this kind holds at the peak."""
    m = micro_batches(setting, plans)
    stage = {
        "first": np.zeros(len(plans)),
        "middle": np.minimum(1, plans.pipeline - 1),
        "last": plans.pipeline - 1,
    }[kind]
    held = np.zeros(len(plans))
    for index, name in enumerate(plans.schedule_names):
        chosen = plans.schedule == index
        if np.any(chosen):
            held[chosen] = get_schedule(name).in_flight(
                plans.pipeline[chosen], m[chosen], plans.virtual_pipeline[chosen], stage[chosen]
            )
    return held


def _workspace(setting: Setting, plans: Plans, counts: Parameters, kind: str) -> np.ndarray:
    """Logits and their gradient where the loss is, and what full sharding gathers."""
    t = plans.tensor
    tokens = setting.tokens(plans)
    logits = LOGIT_BYTES[setting.framework.cross_entropy] * tokens * padded_vocabulary(setting.model, t) / t
    # Until a barrier is passed a rank keeps its part of the logits, and begins those of the next one.
    kept = 1 + by_schedule(plans, lambda schedule: schedule.output_barriers)
    sharded = Sharding(setting, plans).parameters
    gathered = np.where(sharded, _gathered(setting, plans, counts, kind), 0.0)
    return head_share(plans)[kind] * kept * logits + gathered


def _gathered(setting: Setting, plans: Plans, counts: Parameters, kind: str) -> np.ndarray:
    """Parameters and gradients that full sharding makes whole for a while.

    A framework that wraps whole layers holds two of them (one in use, one prefetched) and the gradients of
    one; one that gathers each submodule holds the largest (a third of a layer), what it may fetch ahead, and
    a bucket of gradients, which ``bucket_bytes`` counts. A schedule whose micro batches share gathers holds
    whole chunks so.
    """
    framework, layer = setting.framework, counts.one_layer
    if framework.gathers_a_layer > 1:
        held = (layer / 3 + np.minimum(layer, framework.prefetch_parameters)) * framework.gather_bytes
    else:
        held = layer * (2 * framework.gather_bytes + framework.reduce_bytes)
    shared = gathered_together(plans, micro_batches(setting, plans)) > 1
    chunk = counts.total(kind) / plans.virtual_pipeline
    return np.where(shared, chunk * (2 * framework.gather_bytes + framework.reduce_bytes), held)


def _buffers(setting: Setting, plans: Plans) -> np.ndarray:
    """Communication buffers: each process group that spans more than one rank has its own."""
    groups = sum(
        (degree > 1).astype(float) for degree in (plans.tensor, plans.pipeline, plans.context, plans.expert)
    )
    groups = groups + (plans.data * plans.context > 1)
    return groups * setting.framework.buffer_bytes_per_group + setting.framework.bucket_bytes * (
        plans.data > 1
    )
