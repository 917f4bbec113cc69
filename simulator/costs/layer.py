"""One transformer layer: kernels and communication of its forward, backward and recomputed passes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs import elementwise as passes
from simulator.costs.attention import Attention, attention
from simulator.costs.mlp import Mlp, dense_mlp, expert_mlp
from simulator.costs.overlap import contention
from simulator.costs.setting import Setting
from simulator.costs.work import Transfer, Work
from simulator.plan import Choice, Plans

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
)
"""The plan fields that a layer's cost depends on."""

GRAPH_LAUNCHES = 1
"""Launches of a pass whose other kernels a graph replays."""

SELECTIVE, FULL = (Choice["recompute"].index(word) for word in ("selective", "full"))
BACKWARD_OVERLAP, FULL_OVERLAP = (Choice["overlap_tensor"].index(word) for word in ("backward", "full"))


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
        """Seconds until the last kernel ends: the device's time, or the host's where launching is slower."""
        host = self.work.launches * self.setting.host_seconds_per_kernel
        device = self.work.device * self.setting.pace
        return np.maximum(device, host) if self.setting.launches_ahead else device + host

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


def layer(setting: Setting, plans: Plans, experts: bool) -> Layer:
    """Cost of one layer, with a dense MLP or with experts."""
    block = attention(setting, plans)
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

    none = Transfer(np.zeros(len(plans)), np.zeros(len(plans)))
    tensor_forward, tensor_backward = _tensor_communication(setting, plans, block, mlp, experts)
    for work in (forward, backward_input):
        work.launches = work.launches + np.where(plans.tensor > 1, np.where(plans.sequence_parallel, 4, 2), 0)
    if setting.captures_layers and mlp.launches:
        for work, outside in zip((forward, backward_input, backward_weight), mlp.launches, strict=True):
            work.launches = outside + GRAPH_LAUNCHES
    _alternate(backward_input, backward_weight)
    first = Pass(forward, tensor_forward, block.context_forward, mlp.expert_forward, setting)
    return Layer(
        forward=first,
        backward_input=Pass(
            backward_input, tensor_backward, block.context_backward, mlp.expert_backward, setting
        ),
        backward_weight=Pass(backward_weight, none, none, none, setting),
        recompute=_recompute(setting, plans, block, mlp, first),
    )


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
    tokens = plans.micro_batch * setting.training.seq_len / plans.context
    tokens = tokens / np.where(plans.sequence_parallel, plans.tensor, 1)
    size = tokens * model.hidden * setting.width
    residual = passes.RESIDUAL[framework.elementwise, setting.dropout]
    norms = 1 if model.parallel_block else model.norms_per_layer
    norm = passes.VARIANTS[model.norm]
    for count, kind, variant, times in (
        (passes.NORM, "norm", norm, norms),
        (residual, "elementwise", "elementwise", 2),
    ):
        for work, moved, launches in (
            (forward, count.forward, count.forward_launches),
            (backward, count.backward, count.backward_launches),
        ):
            seconds = setting.kernels.memory_bound(moved * size, variant)
            work.add(kind, times * seconds, times * launches)


def _tensor_communication(
    setting: Setting, plans: Plans, block: Attention, mlp: Mlp, experts: bool
) -> tuple[Transfer, Transfer]:
    """Tensor-parallel traffic of a layer, forward and backward, and what products do not hide.

    Without sequence parallelism each of attention and MLP all-reduces its output forward and its input
    gradient backward; with it, each gathers its input and reduce-scatters its output, and gathers once
    more backward for the weight gradient (Korthikanti et al. 2022, section 4.2.2). "backward" overlap
    runs the input-gradient reduction beside the weight-gradient product and the second gather beside the
    input-gradient product (Megatron-LM's asynchronous linear layer). "full" also cuts forward
    communication into one slice a rank and runs it beside the product it feeds or follows (Transformer
    Engine user buffers, which reach one NVLink domain): the first slice stays visible.
    """
    cluster, model, t = setting.cluster, setting.model, plans.tensor
    tokens = plans.micro_batch * setting.training.seq_len / plans.context
    size = tokens * model.hidden * setting.width
    reduce = cluster.collective("all_reduce", size, t, 1)
    gather = cluster.collective("all_gather", size, t, 1)
    scatter = cluster.collective("reduce_scatter", size, t, 1)
    blocks = 1 if model.parallel_block else 2
    sharded_mlp = not experts or bool(model.moe and model.moe.shared_experts)
    parts = [block.linears, mlp.linears] if sharded_mlp else [block.linears]
    blocks = min(blocks, len(parts))

    def product(role: str, kind: str) -> np.ndarray:
        return sum((p.seconds(role, kind) for p in parts), np.zeros(len(plans))) / blocks

    sequence = plans.sequence_parallel.astype(bool)
    forward = np.where(sequence, gather + scatter, reduce)
    backward = np.where(sequence, 2 * gather + scatter, reduce)
    column, row = product("column", "forward"), product("row", "forward")
    column_dgrad, row_dgrad, column_wgrad = (
        product("column", "dgrad"),
        product("row", "dgrad"),
        product("column", "wgrad"),
    )

    hidden_backward = np.where(
        sequence,
        np.minimum(gather, column_dgrad) + np.minimum(scatter, column_wgrad),
        np.minimum(reduce, column_wgrad),
    )
    slices = 1 - 1 / t
    sliced_forward = np.minimum(slices * gather, column) + np.minimum(slices * scatter, row)
    sliced_backward = hidden_backward + np.minimum(slices * gather, row_dgrad)
    overlap = plans.overlap_tensor
    sliced = (overlap == FULL_OVERLAP) & sequence & (t <= cluster.domain)
    forward_hidden = np.where(sliced, sliced_forward, 0.0)
    backward_hidden = np.select(
        [sliced, overlap >= BACKWARD_OVERLAP], [sliced_backward, hidden_backward], 0.0
    )
    slow = 1 - contention(setting)
    return (
        Transfer(blocks * forward, blocks * (forward - slow * forward_hidden)),
        Transfer(blocks * backward, blocks * (backward - slow * backward_hidden)),
    )


def _recompute(setting: Setting, plans: Plans, block: Attention, mlp: Mlp, first: Pass) -> Pass:
    """Selective recomputation repeats the attention core; full repeats the whole forward pass."""
    selective, full = plans.recompute == SELECTIVE, plans.recompute == FULL
    work = Work()
    work.extend(block.core_forward, selective * 1.0)
    if setting.framework.selective == "all-but-projections":
        work.extend(mlp.linears.forward, selective * 1.0)
        work.extend(mlp.between_forward, selective * 1.0)
    work.extend(first.work, full * 1.0)

    def scaled(transfer: Transfer, factor: np.ndarray) -> Transfer:
        return Transfer(transfer.total * factor, transfer.exposed * factor)

    return Pass(
        work,
        scaled(first.tensor, full),
        scaled(first.context, selective | full),
        scaled(first.expert, full),
        setting,
    )
