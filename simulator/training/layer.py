"""One transformer layer: kernels and communication of its forward, backward and recomputed passes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from core.records import record
from simulator.layout.model_ops import layer_lists
from simulator.models import LayerKind
from simulator.ops import Op, Product
from simulator.ops import elementwise as passes
from simulator.ops.experts import ROUTING
from simulator.plan import FULL, SELECTIVE, Plans
from simulator.setting import Setting
from simulator.training.combined import Work, alone_share, beside_partner, waits_together
from simulator.training.layer_parts import ORDER, LayerParts
from simulator.training.overlap import NO_TRANSFER, Transfer, exchange_slowdown
from simulator.training.pass_costs import PassCosts
from simulator.training.recomputed import recomputed, repeated_modules, selective_rule, unneeded_ops
from simulator.training.tensor import tensor_traffic
from simulator.training.work import KernelTimes, Priced, price_passes, sum_costs

GRAPH_LAUNCHES = 1
"""Launches of a pass whose other kernels a graph replays."""


@record()
class Layer:
    """What one layer costs for one micro batch on one device; arrays of shape (plans,).

    ``backward_weight`` holds no communication, so a schedule may move it. ``recompute`` is the work that the
    plan's recomputation adds before the backward pass. ``experts`` are those kernels of the other passes that
    run between dispatch to experts and combination.
    """

    forward: PassCosts
    backward_input: PassCosts
    backward_weight: PassCosts
    recompute: PassCosts
    experts: Work


def layer(setting: Setting, plans: Plans, kind: LayerKind) -> Layer:
    """Cost of one layer of a kind."""
    return layer_passes(setting, plans, price_passes(setting, layer_ops(setting, plans, kind))[0], kind)


def layer_ops(setting: Setting, plans: Plans, kind: LayerKind) -> list[Op]:
    """Forward ops of one layer."""
    return layer_lists(setting, plans, [kind])[0]


def layer_passes(setting: Setting, plans: Plans, prices: list[Priced], kind: LayerKind) -> Layer:
    """The passes that priced ops of one layer make."""
    model, parts = setting.model, LayerParts(prices)
    forward = KernelTimes.of(parts.forward(*ORDER))
    backward_input = KernelTimes.of(parts.backward("input"))
    backward_weight = KernelTimes.of(parts.backward("weight"))
    if setting.framework.kernels.stacks_activations:
        _stack(setting, plans, parts, forward, backward_input)

    communicates = not kind.experts or (model.moe and model.moe.shared_experts)
    mixer, mlp = parts.named("projections"), parts.named("mlp")
    blocks = [mixer + mlp] if model.parallel_block else [mixer, mlp] if communicates else [mixer]
    blocks = [block for block in blocks if block]
    tensor = tensor_traffic(setting, plans, blocks, (forward.device, backward_input.device))
    forward.add("gemm", tensor.slicing_forward, 0)
    backward_input.add("gemm", tensor.slicing_backward, 0)
    graphed = partial(in_graph, setting.graphs, kind.experts)
    works = (forward, ("",), ("",)), (backward_input, ("input",), ("input", "weight"))
    for work, gradients, sent in (*works, (backward_weight, ("weight",), ())):
        sends = (op for op, _ in prices if op.kind == "tensor" and op.gradient in sent and not graphed(op))
        work.launches = work.launches + sum((op.launches for op in sends), 0.0)
        if setting.graphs != "none":
            replayed = [entry for entry in prices if entry.op.gradient in gradients and graphed(entry.op)]
            inside = KernelTimes.of(replayed)
            work.launches = work.launches - inside.launches + GRAPH_LAUNCHES
            work.looped = work.looped - inside.looped
    core = KernelTimes.of(parts.forward("core"))
    if any(graphed(entry.op) for entry in parts.named("core")):
        # The graph of the backward pass repeats the core too.
        core = KernelTimes(core.seconds)
    context = context_traffic(setting, plans, parts.named("core"))
    expert = [parts.sent(setting, "expert", gradient, len(plans)) for gradient in ("", "input")]
    routed = KernelTimes.of(parts.between_exchanges(""))
    counted = setting.framework.host.reads_token_counts and not setting.choices.fixed_capacity
    uncounted = not counted or setting.graphs == "step"
    counts = kind.experts and not uncounted
    reads = ~plans.overlap_expert.astype(bool) & counts
    blocked = kind.experts and _blocked(setting, plans)
    first = PassCosts(forward, tensor.forward, context[0], expert[0], setting, routed, reads, blocked)
    back = PassCosts(backward_input, tensor.backward, context[1], expert[1], setting, blocked=blocked)
    weight = PassCosts(backward_weight, NO_TRANSFER, NO_TRANSFER, NO_TRANSFER, setting)
    _alternate(back, weight)
    exposed = Layer(
        forward=first,
        backward_input=back,
        backward_weight=weight,
        recompute=recomputed(
            setting,
            plans,
            parts,
            core,
            first,
            repeated_modules(setting, parts, kind, graphed),
            unneeded_ops(setting, parts, kind),
        ),
        experts=Work(*(parts.experts(gradient) for gradient in ("", "input", "weight"))),
    )
    return overlapped(plans, exposed, alone_share(setting, plans)) if plans.overlap_expert.any() else exposed


def in_graph(graphs: str, experts: bool, op: Op) -> bool:
    """Whether a CUDA graph replays an op; graphs of a layer hold no routed experts, whose tokens differ."""
    if graphs in ("none", "step"):
        return graphs == "step"
    if not experts:
        return graphs == "layer" or (graphs == "attention" and op.part in ("projections", "core"))
    if op.part == "routed":
        return op.module == ROUTING
    return op.part == "mlp" or graphs != "router"


def overlapped(plans: Plans, layer: Layer, alone: np.ndarray | float = 0.0) -> Layer:
    """A layer of plans that expose the exchange with experts, as plans that overlap it have it.

    ``alone`` is the share of passes without a partner, shape (plans,).
    """
    ahead, back = layer.forward, layer.backward_input
    if ahead.expert is NO_TRANSFER:
        return layer
    setting, overlaps = ahead.setting, plans.overlap_expert.astype(bool)
    passes = ahead, back, layer.backward_weight
    attention = Work(
        *(costs.device - expert_s for costs, expert_s in zip(passes, layer.experts, strict=True))
    )
    size = plans.expert * plans.expert_tensor
    slows = (
        exchange_slowdown(setting, size, ahead.expert.cost),
        exchange_slowdown(setting, size, back.expert.cost),
    )
    sent = ahead.expert.total, back.expert.total
    beside = beside_partner(*sent, attention, layer.experts, slows)
    first, second = (
        Transfer(costs.expert.cost, np.where(overlaps, seconds, 0.0), lost, alone)
        for costs, seconds, lost in zip((ahead, back), beside, slows, strict=True)
    )
    forward = replace(ahead, expert=first, reads=ahead.reads & ~overlaps)
    backward = replace(back, expert=second)
    combined = overlaps & (ahead.expert.total > 0)
    waits = np.where(combined, waits_together(forward.lag, backward.lag, layer.backward_weight.lag), 1.0)
    forward, backward, weight = (
        replace(costs, waits=waits, alone=alone) for costs in (forward, backward, layer.backward_weight)
    )
    return replace(layer, forward=forward, backward_input=backward, backward_weight=weight)


def _blocked(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether CPU proxies of the dispatcher keep the host from launching during an exchange between nodes."""
    choices, cluster = setting.choices, setting.cluster
    posts = choices.dispatcher != "all-to-all"
    posts = posts and cluster.network.dispatcher(choices.dispatcher_library).blocks_host
    return posts & (plans.expert * plans.expert_tensor > max(cluster.domain, cluster.devices_per_node))


def _alternate(inputs: PassCosts, weights: PassCosts) -> None:
    """Spread the launches of both backward passes over the time that the device needs for them.

    Autograd runs them linear layer by linear layer, so long kernels of one, and communication that is exposed
    beside them, let the host catch up with short ones of the other: both take the time of the device or of
    all launches.
    """
    needed = [np.maximum(costs.needed, 0.0) for costs in (inputs, weights)]
    both = needed[0] + needed[1]
    share = np.divide(needed[0], both, out=np.full(np.shape(both), 0.5), where=both > 0)
    launches = inputs.work.launches + weights.work.launches
    looped = inputs.work.looped + weights.work.looped
    for work, part in ((inputs.work, share), (weights.work, 1 - share)):
        work.launches, work.looped = launches * part, looped * part


def context_traffic(setting: Setting, plans: Plans, core: list[Priced]) -> tuple[Transfer, Transfer]:
    """Context-parallel traffic forward and backward, and how much of it runs beside attention.

    Ring attention computes a block while the next one's keys and values travel; gathers and all-to-alls are
    not hidden (Llama 3, section 3.3.2). Each op states its window, so those of a linear layer follow its own
    algorithm. Sends take few channels: they slow nothing.
    """
    if (plans.context == 1).all():
        return NO_TRANSFER, NO_TRANSFER
    transfers = []
    for gradient in ("", "input"):
        direction = [entry for entry in core if entry.op.gradient == gradient]
        sends = [entry for entry in direction if entry.op.kind == "context"]
        cost = sum_costs(setting, sends, (len(plans),))
        windows = [(entry, window) for entry in sends if np.any(window := getattr(entry.op, "window", 0.0))]
        beside = np.zeros(len(plans))
        if windows:  # the sends of one plan share its window
            sent = sum(np.where(window > 0, entry.seconds, 0.0) for entry, window in windows)
            widest = np.maximum.reduce([np.broadcast_to(window, beside.shape) for _, window in windows])
            beside = np.minimum(sent, widest * KernelTimes.of(direction).device)
        transfers.append(Transfer(cost, beside))
    return transfers[0], transfers[1]


def _stack(
    setting: Setting, plans: Plans, parts: LayerParts, forward: KernelTimes, backward: KernelTimes
) -> None:
    """Copies of the kept activations into the stack that XLA's loop over the layers carries, and out of it.

    The layer's input is always kept; outputs of its products are kept unless they are recomputed.
    """

    def outputs(part: str) -> np.ndarray:
        written = (
            each.op.n
            for each in parts.named(part)
            if isinstance(each.op, Product) and not each.op.gradient and each.op.module != "router"
        )
        return np.zeros(len(plans)) + sum(written)

    repeats_mlp = (plans.recompute == SELECTIVE) & (selective_rule(setting) == "all-but-projections")
    written = outputs("projections") + np.where(repeats_mlp, 0.0, outputs("mlp"))
    written = np.where(plans.recompute == FULL, 0.0, written)
    bytes_moved = passes.COPY * setting.width * setting.tokens(plans) * (setting.model.hidden + written)
    for work in (forward, backward):
        work.add("copy", setting.kernels.memory_bound(bytes_moved, "copy"))
