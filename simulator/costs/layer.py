"""One transformer layer: kernels and communication of its forward, backward and recomputed passes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.costs.attention import Attention, attention
from simulator.costs.mlp import Mlp, dense_mlp, expert_mlp
from simulator.costs.overlap import contention, hide
from simulator.costs.setting import Setting
from simulator.costs.tensor import tensor_traffic
from simulator.costs.work import Transfer, Work
from simulator.ops import elementwise as passes
from simulator.plan import FULL, SELECTIVE, Plans

LAYER_FIELDS = (
    "tensor",
    "context",
    "expert",
    "expert_tensor",
    "micro_batch",
    "sequence_parallel",
    "recompute",
    "context_algorithm",
    "overlap_tensor",
    "overlap_expert",
)
"""The plan fields that a layer's cost depends on."""

GRAPH_LAUNCHES = 1
"""Launches of a pass whose other kernels a graph replays."""


@dataclass
class Pass:
    """One pass through a layer: kernels, and each kind of communication inside it."""

    work: Work
    tensor: Transfer
    context: Transfer
    expert: Transfer
    setting: Setting

    @property
    def seconds(self) -> np.ndarray:
        """Elapsed seconds on the slowest device, shape (plans,)."""
        return self.kernels + self.exposed

    @property
    def kernels(self) -> np.ndarray:
        """Seconds of kernels and of waiting for them to be launched, where that is slower.

        The host launches on while collectives run, but not past a dispatch to experts, whose sizes it reads.
        """
        host = self.work.launches * self.setting.host_seconds_per_kernel
        device = self.work.device * self.setting.pace
        if not self.setting.launches_ahead:
            return device + host
        return np.maximum(device, host - self.tensor.exposed - self.context.exposed)

    @property
    def exposed(self) -> np.ndarray:
        """Seconds of communication that nothing hides."""
        return self.tensor.exposed + self.context.exposed + self.expert.exposed


@dataclass
class Layer:
    """What one layer costs for one micro batch on one device; arrays of shape (plans,).

    ``backward_weight`` holds no communication: it is what a schedule may move. ``recompute`` is what the
    plan's recomputation adds before the backward pass.
    """

    forward: Pass
    backward_input: Pass
    backward_weight: Pass
    recompute: Pass


def layers(setting: Setting, plans: Plans) -> list[tuple[Layer, float]]:
    """Cost of each kind of layer that the model has, dense and with experts, and its share of the layers."""
    block, share = attention(setting, plans), setting.model.moe_layers / setting.model.layers
    kinds = (False, 1 - share), (True, share)
    return [(layer(setting, plans, experts, block), part) for experts, part in kinds if part > 0]


def layer(setting: Setting, plans: Plans, experts: bool, block: Attention | None = None) -> Layer:
    """Cost of one layer, with a dense MLP or with experts; ``block`` is its attention, where known."""
    model, block = setting.model, block or attention(setting, plans)
    mlp = expert_mlp(setting, plans) if experts else dense_mlp(setting, plans)
    forward, backward_input, backward_weight = Work(), Work(), Work()
    for part in (block.linears, mlp.linears):
        forward.extend(part.forward)
        backward_input.extend(part.backward_input)
        backward_weight.extend(part.backward_weight)
    for work in (block.core_forward, mlp.between_forward):
        forward.extend(work)
    for work in (block.core_backward, mlp.between_backward):
        backward_input.extend(work)
    _norms_and_residuals(setting, plans, forward, backward_input)
    if setting.framework.stacks_activations:
        _stack(setting, plans, block, mlp, forward, backward_input)

    none = Transfer(np.zeros(len(plans)), np.zeros(len(plans)))
    # Of experts only the shared ones are sharded over tensor-parallel ranks.
    moe = model.moe if experts else None
    sharded = [block.linears] if moe and not moe.shared_experts else [block.linears, mlp.linears]
    blocks = [sharded] if model.parallel_block else [[linears] for linears in sharded]
    tensor = tensor_traffic(setting, plans, blocks)
    forward.add("gemm", tensor.slicing_forward, 0)
    backward_input.add("gemm", tensor.slicing_backward, 0)
    for work in (forward, backward_input):
        collectives = len(blocks) * np.where(plans.sequence_parallel, 2, 1)
        work.launches = work.launches + np.where(plans.tensor > 1, collectives, 0)
    if setting.captures_layers and mlp.routed_launches:
        works = forward, backward_input, backward_weight
        for work, outside in zip(works, mlp.routed_launches, strict=True):
            work.launches = outside + GRAPH_LAUNCHES
        # The graph of the backward pass repeats the core too.
        block = replace(block, core_forward=Work(block.core_forward.seconds))
    _alternate(backward_input, backward_weight)
    first = Pass(forward, tensor.forward, block.context_forward, mlp.expert_forward, setting)
    back = Pass(backward_input, tensor.backward, block.context_backward, mlp.expert_backward, setting)
    return Layer(
        forward=_beside_experts(plans, first),
        backward_input=_beside_experts(plans, back),
        backward_weight=Pass(backward_weight, none, none, none, setting),
        recompute=_recompute(setting, plans, block, mlp, first),
    )


def _beside_experts(plans: Plans, each: Pass) -> Pass:
    """The pass with its dispatch to experts beside the kernels of another micro batch, where a plan says so.

    Megatron Core runs the forward pass of one micro batch in step with the backward pass of another, and
    the exchanges of each beside the kernels of the other (its overlap_moe_expert_parallel_comm; DeepSeek-V3's
    DualPipe does alike). A pass hides as much as it has kernels.
    """
    total = each.expert.total
    beside = np.where(plans.overlap_expert, np.minimum(total, each.work.device), 0.0)
    exposed = hide(total, beside, np.zeros(len(plans)), contention(each.setting))
    return replace(each, expert=Transfer(total, exposed))


def _alternate(inputs: Work, weights: Work) -> None:
    """Spread the launches of both backward products over their device time.

    Autograd runs them linear layer by linear layer, so long kernels of one let the host catch up with short
    ones of the other.
    """
    launches, both = inputs.launches + weights.launches, inputs.device + weights.device
    share = np.divide(inputs.device, both, out=np.full(np.shape(both), 0.5), where=both > 0)
    inputs.launches, weights.launches = launches * share, launches * (1 - share)


def _norms_and_residuals(setting: Setting, plans: Plans, forward: Work, backward: Work) -> None:
    model, framework = setting.model, setting.framework
    tokens = setting.tokens(plans)
    tokens = tokens / np.where(plans.sequence_parallel, plans.tensor, 1)
    size = tokens * model.hidden * setting.width
    residual = passes.RESIDUAL[framework.elementwise, setting.dropout]
    norms = 1 if model.parallel_block else model.norms_per_layer
    norm = passes.VARIANTS[model.norm]
    composite = framework.composite_norm and model.norm == "rmsnorm"
    for count, kind, variant, times in (
        (passes.COMPOSITE_NORM if composite else passes.NORM, "norm", norm, norms),
        (residual, "elementwise", "elementwise", 2),
    ):
        for work, moved, launches in (
            (forward, count.forward, count.forward_launches),
            (backward, count.backward, count.backward_launches),
        ):
            seconds = setting.kernels.memory_bound(moved * size, variant)
            work.add(kind, times * seconds, times * launches)


def _stack(setting: Setting, plans: Plans, block: Attention, mlp: Mlp, forward: Work, backward: Work) -> None:
    """Copies of the kept activations into the stack that XLA's loop over the layers carries, and out of it.

    The layer's input is always kept, what its products write unless it is repeated.
    """
    tokens = setting.tokens(plans)
    repeats_mlp = (plans.recompute == SELECTIVE) & (setting.framework.selective == "all-but-projections")
    written = sum((outputs for _, outputs, _, _ in block.linears.added), np.zeros(len(plans)))
    in_mlp = sum((outputs for _, outputs, _, _ in mlp.linears.added), np.zeros(len(plans)))
    written = np.where(plans.recompute == FULL, 0.0, written + np.where(repeats_mlp, 0.0, in_mlp))
    moved = passes.COPY * setting.width * tokens * (setting.model.hidden + written)
    for work in (forward, backward):
        work.add_bytes(setting.kernels, "copy", moved)


def _recompute(setting: Setting, plans: Plans, block: Attention, mlp: Mlp, first: Pass) -> Pass:
    """What selective recomputation repeats is the framework's; full repeats the whole forward pass."""
    repeats = setting.framework.selective
    selective, full = plans.recompute == SELECTIVE, plans.recompute == FULL
    work = Work()
    if repeats == "every-other-product":
        _every_other_product(setting, block, mlp, first, selective, work)
    else:
        work.extend(block.core_forward, selective * 1.0)
    if repeats == "all-but-projections":
        work.extend(mlp.linears.forward, selective * 1.0)
        work.extend(mlp.between_forward, selective * 1.0)
    work.extend(first.work, full * 1.0)

    def repeated(transfer: Transfer, too: bool) -> Transfer:
        times = full | selective & too
        return Transfer(transfer.total * times, transfer.exposed * times)

    return Pass(
        work,
        repeated(first.tensor, False),
        repeated(first.context, repeats != "every-other-product"),
        repeated(first.expert, repeats == "all-but-projections"),
        setting,
    )


def _every_other_product(
    setting: Setting, block: Attention, mlp: Mlp, first: Pass, selective: np.ndarray, work: Work
) -> None:
    """Append what torchtitan's selective recomputation of operations repeats to ``work``.

    It keeps the results of attention and of every other product, in the order query, key, value, output,
    gate, up, down, and repeats the rest (torchtitan, activation_checkpoint.py: _save_list and mm_count).
    With 8-bit products it takes the same memory (its benchmarks of December 2024), so it keeps as many.
    """
    model = setting.model
    for kind, seconds in first.work.seconds.items():
        if kind not in ("attention", "gemm"):
            work.add(kind, seconds * selective, 0)
    work.launches = work.launches + first.work.launches * selective
    key = model.kv_heads / (model.heads + 2 * model.kv_heads)
    attention = key * block.linears.seconds("column", "forward") + block.linears.seconds("row", "forward")
    halved = ("column", 0.5) if model.gated else ("row", 1.0)
    products = attention + halved[1] * mlp.linears.seconds(halved[0], "forward")
    work.add("gemm", products * selective, 0)
