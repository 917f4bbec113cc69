"""The dense MLP and the mixture of experts of one layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs.linear import LOW_PRECISION, Linears
from simulator.costs.setting import Setting
from simulator.costs.work import Transfer, Work
from simulator.models.parts import MixtureOfExperts
from simulator.ops import elementwise as passes
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

    ``routed_launches`` counts the kernels of routed experts in the forward pass and in the two backward
    passes; graphs cannot hold them, as the tokens of an expert differ from step to step.
    """

    linears: Linears
    between_forward: Work
    between_backward: Work
    expert_forward: Transfer
    expert_backward: Transfer
    routed_launches: tuple[np.ndarray | float, ...] = ()


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
    model, moe = setting.model, setting.model.moe
    if moe is None:
        raise ValueError(f"{model.name} has no expert layers")
    tokens = setting.tokens(plans)
    own = tokens / plans.tensor
    linears, between = Linears(setting, tokens), (Work(), Work())
    if moe.shared_experts:
        _mlp(setting, linears, between, tokens, moe.shared_experts * moe.shared_feed_forward / plans.tensor)
    router = Linears(setting, own)
    router.add("down", moe.experts, model.hidden, setting.core_dtype, bias=False)
    routed = own * moe.top_k * plans.expert_tensor
    experts = _experts(setting, plans, moe, routed)
    for part in (router, experts):
        linears.forward.extend(part.forward)
        linears.backward_input.extend(part.backward_input)
        linears.backward_weight.extend(part.backward_weight)
    _activation(setting, between, routed * moe.feed_forward / plans.expert_tensor)
    biases = _biases(setting, between, routed, moe.experts / plans.expert) if model.bias else (0.0, 0.0)

    size = own * model.hidden * setting.width
    arrivals = _arrivals(setting, plans, moe)
    copies = _permutation(setting, plans, moe, arrivals)
    for work, count in zip(between, ROUTING_LAUNCHES, strict=True):
        work.add("copy", setting.kernels.memory_bound(copies * size, "copy"), count)
    # Beside the products and their biases, the activation.
    outside = DISPATCH_LAUNCHES + 1
    return Mlp(
        linears,
        *between,
        *_dispatch(setting, plans, arrivals * size),
        routed_launches=(
            experts.forward.launches + biases[0] + outside,
            experts.backward_input.launches + biases[1] + outside,
            experts.backward_weight.launches,
        ),
    )


def _experts(setting: Setting, plans: Plans, moe: MixtureOfExperts, routed: np.ndarray) -> Linears:
    """Products of one rank's experts, which share ``routed`` copies of tokens.

    At a training step's sizes an expert's product is one that fills tiles as a dense one does: Transformer
    Engine runs one cuBLAS product an expert on several streams (2,672 TFLOP/s in MXFP8 at depth 7168 and
    width 2048 on GB200, which the dense form gives; Megatron Core, deepseek-v3-gb200-optimization.md).
    """
    local = moe.experts / plans.expert
    launches = local if setting.framework.grouped_launches == "per-expert" else 1.0
    width, hidden = moe.feed_forward / plans.expert_tensor, setting.model.hidden
    experts = Linears(setting, routed / local, local, launches, "grouped_gemm")
    experts.add("expert", (2 if setting.model.gated else 1) * width, hidden)
    experts.add("expert", hidden, width)
    return experts


def _biases(
    setting: Setting, between: tuple[Work, Work], routed: np.ndarray, local: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Append the biases of the down projections of ``local`` experts; launches, forward and backward."""
    count, size = passes.EXPERT_BIAS, routed * setting.model.hidden * setting.width
    launches = count.forward_launches * local, count.backward_launches * local
    for work, moved, times in zip(between, (count.forward, count.backward), launches, strict=True):
        work.add_bytes(setting.kernels, "elementwise", moved * size, times)
    return launches


def _arrivals(setting: Setting, plans: Plans, moe: MixtureOfExperts) -> np.ndarray:
    """Copies of a token that travel to its experts, shape (plans,).

    An all-to-all sends one copy an expert. DeepEP and HybridEP send one to each rank of an NVLink domain,
    or to each other node, that holds any of them and copy it there (DeepEP README; Megatron Core,
    deepseek-v3-gb200-optimization.md: no redundant communication). Groups are chosen evenly, and experts
    in them.
    """
    domain = setting.cluster.domain
    places = np.where(plans.expert > domain, np.maximum(plans.expert / domain, 1.0), plans.expert)
    return np.where(_flex(setting, plans), _visited(places, moe), float(moe.top_k))


def _visited(places: np.ndarray, moe: MixtureOfExperts) -> np.ndarray:
    """Mean number of ranks or nodes, each with an equal share of the experts, that hold any of a token's."""
    anywhere = _different(places, moe.top_k)
    if moe.groups == 1:
        return anywhere
    # A place holds several groups, or several places hold one.
    inside = moe.chosen_groups * _different(places / moe.groups, moe.top_k / moe.chosen_groups)
    grouped = np.where(places < moe.groups, _different(places, moe.chosen_groups), inside)
    return np.minimum(anywhere, grouped)


def _different(places: np.ndarray, draws: float) -> np.ndarray:
    """Mean number of different places in so many draws."""
    return places * (1.0 - (1.0 - 1.0 / np.maximum(places, 1.0)) ** draws)


def _flex(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether DeepEP or HybridEP dispatches, shape (plans,)."""
    dispatcher, per_node = setting.framework.dispatcher, setting.cluster.devices_per_node
    spans = plans.expert * plans.expert_tensor > per_node
    return spans if dispatcher == "flex-between-nodes" else np.full(len(plans), dispatcher == "flex")


def _permutation(setting: Setting, plans: Plans, moe: MixtureOfExperts, arrivals: np.ndarray) -> np.ndarray:
    """Reads and writes of a token's hidden state while copies are brought into their experts' order and back.

    Around an all-to-all: one copy an expert is written in the order of the ranks, sorted again on arrival
    where a rank has several experts, and both again on the way back (Megatron Core, token_dispatcher.py).
    DeepEP and HybridEP leave one permutation on arrival. Under 8 bits each expert's rows are copied once more
    into whole blocks and back, unless the permutation does it as HybridEP's (TEGroupedMLP's Fp8Padding).
    """
    sorts = 4.0 * moe.top_k * (moe.experts > plans.expert)
    blocks = 4.0 * moe.top_k if setting.linear_dtype in LOW_PRECISION else 0.0
    return np.where(
        _flex(setting, plans), 2.0 * (arrivals + moe.top_k), 2.0 * (1 + moe.top_k) + sorts + blocks
    )


def _dispatch(setting: Setting, plans: Plans, size: np.ndarray) -> tuple[Transfer, Transfer]:
    """All-to-all to the experts and back, and the gather inside a sharded expert, all of it exposed.

    Another micro batch's kernels may hide it; ``layer`` sees to that.
    """
    cluster, e, et = setting.cluster, plans.expert, plans.expert_tensor
    swap = cluster.collective("all_to_all", size, e, et)
    swap = swap / np.where(_flex(setting, plans) & (e * et > cluster.domain), FLEX_NETWORK, 1.0)
    gather = cluster.collective("all_gather", size * et, et, 1)
    scatter = cluster.collective("reduce_scatter", size * et, et, 1)
    total = 2 * swap + gather + scatter
    return Transfer(total, total), Transfer(total, total)
