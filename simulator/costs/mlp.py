"""The dense MLP and the mixture of experts of one layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs import elementwise as passes
from simulator.costs.linear import LOW_PRECISION, Linears
from simulator.costs.setting import Setting
from simulator.costs.work import Transfer, Work
from simulator.plan import Plans

ROUTING_LAUNCHES = 40, 24
"""Kernels of router, dispatch preparation, permutation and its inverse, forward and backward: 31 of router
and preparation with Megatron Core's fused router (deepseek-v3-gb200-optimization.md, section 2.1.4: from 72
without) and 9 of two permutations, two sorts and the exchange of probabilities (token_dispatcher.py);
backward those of them that have gradients, counted in the source."""

DISPATCH_LAUNCHES = 9
"""Those of them that stay outside a graph of the router: permutations, sorts and exchanges."""

FLEX_NETWORK = 45.0 / (0.74 * 50.0)
"""Speed of DeepEP between nodes over an NCCL all-to-all: 51 GB/s of 8 nodes' traffic, 1/8 of it local, over a
NIC of 50 GB/s with 64 ranks (DeepEP, docs/legacy.md), where the fabric's all-to-all reaches 0.74 of it."""


@dataclass
class Mlp:
    """One MLP block: its linear layers, the kernels between them, and expert communication.

    ``launches`` counts the kernels of routed experts in the forward pass and in the two backward passes;
    graphs cannot hold them, as the tokens of an expert differ from step to step.
    """

    linears: Linears
    between_forward: Work
    between_backward: Work
    expert_forward: Transfer
    expert_backward: Transfer
    launches: tuple[np.ndarray | float, ...] = ()


def dense_mlp(setting: Setting, plans: Plans) -> Mlp:
    """Cost of a dense MLP on one device and one micro batch; arrays of shape (plans,)."""
    tokens = setting.tokens(plans)
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
    tokens = setting.tokens(plans)
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
    outside: list[np.ndarray | float] = [DISPATCH_LAUNCHES + 1.0, DISPATCH_LAUNCHES + 1.0]
    if model.bias:
        bias = passes.EXPERT_BIAS
        each = ((bias.forward, bias.forward_launches), (bias.backward, bias.backward_launches))
        for index, (moved, count) in enumerate(each):
            elements = routed * model.hidden * setting.width
            between[index].add_bytes(kernels, "elementwise", moved * elements, count * local)
            outside[index] = outside[index] + count * local
    launches = (
        experts.forward.launches + outside[0],
        experts.backward_input.launches + outside[1],
        experts.backward_weight.launches,
    )

    size = own * model.hidden * setting.width
    arrivals = _arrivals(setting, plans)
    copies = _permutation(setting, plans, arrivals)
    for work, count in zip(between, ROUTING_LAUNCHES, strict=True):
        work.add("copy", kernels.memory_bound(copies * size, "copy"), count)
    return Mlp(linears, *between, *_dispatch(setting, plans, arrivals * size), launches)


def _arrivals(setting: Setting, plans: Plans) -> np.ndarray:
    """Copies of a token that travel to its experts, shape (plans,).

    An all-to-all sends one copy an expert. DeepEP and HybridEP send one to each rank of an NVLink domain,
    or to each other node, that holds any of them and copy it there (DeepEP README; Megatron Core,
    deepseek-v3-gb200-optimization.md: no redundant communication). Experts are chosen evenly.
    """
    moe = setting.model.moe
    top_k = moe.top_k if moe else 1
    domain = setting.cluster.domain
    places = np.where(plans.expert > domain, np.maximum(plans.expert / domain, 1.0), plans.expert)
    apart = places * (1.0 - (1.0 - 1.0 / places) ** top_k)
    return np.where(_flex(setting, plans), apart, float(top_k))


def _flex(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether DeepEP or HybridEP dispatches, shape (plans,)."""
    dispatcher, per_node = setting.framework.dispatcher, setting.cluster.devices_per_node
    spans = plans.expert * plans.expert_tensor > per_node
    return spans if dispatcher == "flex-between-nodes" else np.full(len(plans), dispatcher == "flex")


def _permutation(setting: Setting, plans: Plans, arrivals: np.ndarray) -> np.ndarray:
    """Reads and writes of a token's hidden state while copies are brought into their experts' order and back.

    Around an all-to-all: one copy an expert is written in the order of the ranks, sorted again on arrival
    where a rank has several experts, and both again on the way back (Megatron Core, token_dispatcher.py).
    DeepEP and HybridEP leave one permutation on arrival. Under 8 bits each expert's rows are copied once more
    into whole blocks and back, unless the permutation does it as HybridEP's (TEGroupedMLP's Fp8Padding).
    """
    moe = setting.model.moe
    if moe is None:
        return np.zeros(len(plans))
    sorts = 4.0 * moe.top_k * (moe.experts > plans.expert)
    blocks = 4.0 * moe.top_k if setting.linear_dtype in LOW_PRECISION else 0.0
    return np.where(
        _flex(setting, plans), 2.0 * (arrivals + moe.top_k), 2.0 * (1 + moe.top_k) + sorts + blocks
    )


def _dispatch(setting: Setting, plans: Plans, size: np.ndarray) -> tuple[Transfer, Transfer]:
    """All-to-all to the experts and back, and the gather inside a sharded expert; nothing hides them."""
    cluster, e, et = setting.cluster, plans.expert, plans.expert_tensor
    swap = cluster.collective("all_to_all", size, e, et)
    swap = swap / np.where(_flex(setting, plans) & (e * et > cluster.domain), FLEX_NETWORK, 1.0)
    gather = cluster.collective("all_gather", size * et, et, 1)
    scatter = cluster.collective("reduce_scatter", size * et, et, 1)
    total = 2 * swap + gather + scatter
    return Transfer(total, total), Transfer(total, total)
