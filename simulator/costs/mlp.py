"""The dense MLP and the mixture of experts of one layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs import elementwise as passes
from simulator.costs.linear import Linears
from simulator.costs.setting import Setting
from simulator.costs.work import Transfer, Work
from simulator.plan import Plans

ROUTING_LAUNCHES = 24
"""Kernels of router softmax, top-k, auxiliary loss, sorting, permutation and its inverse in Megatron Core's
token dispatcher, counted in its source (moe_utils.py, token_dispatcher.py)."""


@dataclass
class Mlp:
    """One MLP block: its linear layers, the kernels between them, and expert communication."""

    linears: Linears
    between_forward: Work
    between_backward: Work
    expert_forward: Transfer
    expert_backward: Transfer


def dense_mlp(setting: Setting, plans: Plans) -> Mlp:
    """Cost of a dense MLP on one device and one micro batch; arrays of shape (plans,)."""
    tokens = plans.micro_batch * setting.training.seq_len / plans.context
    linears = Linears(setting, tokens)
    between = Work(), Work()
    _mlp(setting, linears, between, tokens, setting.model.feed_forward / plans.tensor)
    none = np.zeros(len(plans))
    return Mlp(linears, *between, Transfer(none, none), Transfer(none, none))


def _mlp(
    setting: Setting, linears: Linears, between: tuple[Work, Work], tokens: np.ndarray, width: np.ndarray
) -> None:
    """Up projection, activation and down projection of one inner width on one rank."""
    gates = 2 if setting.model.gated else 1
    linears.add("column", gates * width, setting.model.hidden)
    linears.add("row", setting.model.hidden, width)
    _activation(setting, between, tokens * width)


def _activation(setting: Setting, between: tuple[Work, Work], elements: np.ndarray) -> None:
    table = passes.GATED if setting.model.gated else passes.PLAIN
    count = table[setting.framework.elementwise]
    size = elements * setting.width
    kernels, variant = setting.kernels, passes.VARIANTS.get(setting.model.activation, "")
    between[0].add_bytes(kernels, "activation", count.forward * size, count.forward_launches, variant)
    between[1].add_bytes(kernels, "activation", count.backward * size, count.backward_launches, variant)


def expert_mlp(setting: Setting, plans: Plans) -> Mlp:
    """Cost of a mixture of experts: router, dispatch, grouped products, combine, shared experts.

    Tokens are spread evenly over experts and ranks. A device of the tensor-parallel group dispatches its
    own share of the tokens; experts sharded over ``expert_tensor`` ranks gather theirs first.
    """
    model, kernels, moe = setting.model, setting.kernels, setting.model.moe
    if moe is None:
        raise ValueError(f"{model.name} has no expert layers")
    tokens = plans.micro_batch * setting.training.seq_len / plans.context
    own = tokens / plans.tensor
    linears = Linears(setting, tokens)
    between = Work(), Work()
    router = Linears(setting, own)
    router.add("down", moe.experts, model.hidden, setting.core_dtype, bias=False)
    linears.forward.extend(router.forward)
    linears.backward_input.extend(router.backward_input)
    linears.backward_weight.extend(router.backward_weight)
    if moe.shared_experts:
        _mlp(setting, linears, between, tokens, moe.shared_experts * moe.shared_feed_forward / plans.tensor)

    routed = own * moe.top_k * plans.expert_tensor
    local = moe.experts / plans.expert
    width = moe.feed_forward / plans.expert_tensor
    gates = 2 if model.gated else 1
    # At a training step's sizes an expert's product is one that fills tiles as a dense one does: Transformer
    # Engine runs one cuBLAS product an expert on several streams (2,672 TFLOP/s in MXFP8 at depth 7168 and
    # width 2048 on GB200, which the dense form gives; Megatron Core, deepseek-v3-gb200-optimization.md).
    separate = setting.framework.grouped_launches == "per-expert"
    experts = Linears(setting, routed / local, local, local if separate else 1.0, "grouped_gemm")
    experts.add("expert", gates * width, model.hidden)
    experts.add("expert", model.hidden, width)
    linears.forward.extend(experts.forward)
    linears.backward_input.extend(experts.backward_input)
    linears.backward_weight.extend(experts.backward_weight)
    _activation(setting, between, routed * width)

    # Permute reads a token once and writes it top_k times; unpermute reads top_k copies and writes one.
    size = own * model.hidden * setting.width
    moved = kernels.memory_bound((1 + moe.top_k) * size, "copy")
    for work in between:
        work.add("copy", 2 * moved, ROUTING_LAUNCHES)
    return Mlp(linears, *between, *_dispatch(setting, plans, own * moe.top_k * model.hidden * setting.width))


def _dispatch(setting: Setting, plans: Plans, size: np.ndarray) -> tuple[Transfer, Transfer]:
    """All-to-all to the experts and back, and the gather inside a sharded expert; nothing hides them."""
    cluster, e, et = setting.cluster, plans.expert, plans.expert_tensor
    swap = cluster.collective("all_to_all", size, e, et)
    gather = cluster.collective("all_gather", size * et, et, 1)
    scatter = cluster.collective("reduce_scatter", size * et, et, 1)
    total = 2 * swap + gather + scatter
    return Transfer(total, total), Transfer(total, total)
