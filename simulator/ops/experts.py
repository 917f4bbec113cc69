"""The mixture of experts of a layer: router, dispatch, products of experts, combine, shared experts.

The rank is the busiest one: it computes and receives its ``load`` times the mean of routed tokens, which are
spread evenly over its experts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simulator.models import MixtureOfExperts
from simulator.ops import elementwise as passes
from simulator.ops.build import EXPERT_DOWN, LOW_PRECISION, gradient_sums, kernel, linear
from simulator.ops.mlp import activation, mlp_products
from simulator.ops.op import Collective, ExpertLayer, MemoryBound, Op, Size
from simulator.ops.rank import Array, Rank

ROUTER_LAUNCHES = {True: 31.0, False: 72.0}
"""Kernels of router and dispatch preparation, with Megatron Core's fused router and without
(deepseek-v3-gb200-optimization.md, section 2.1.4)."""

FLEX_PREPARES = 14.0
"""Number of those kernels that DeepEP replaces (section 2.2.1: 17 of 31 remain)."""

DISPATCH_LAUNCHES = 9.0, 4.0
"""Kernels that bring tokens to experts and back, by all-to-all (two permutations, two sorts, exchanges of
tokens and probabilities) and by DeepEP or HybridEP (dispatch, permutation, its inverse, combination): the
kernels outside a graph of the router (Megatron Core, token_dispatcher.py)."""

CAPACITY_LAUNCHES = 8.0, 21.0
"""Kernels that drop tokens beyond a fixed capacity, and those that bring tokens to experts and back where
each has as many: top-k by expert with its mask (8); a stable sort of the map with its indices and the
selections of tokens and probabilities (14), the order of local experts and back (2), weighting and sum into
zeroes (5). Fused permutation is for tokens without a capacity (Megatron Core 0.12, moe_utils.py:
topk_softmax_with_capacity, permute and unpermute with drop_and_pad)."""

FUSED_LAUNCHES = 0.08
"""Launches that the host's work on an expert takes in each product of a fused MLP: its tensors, pointers and
quantizers (Transformer Engine, issue 2897: 1.2 ms forward and 2.1 ms backward for 64 experts of GB200)."""

SCORE_BYTES, COUNT_BYTES = 4.0, 8.0
"""Bytes of a copy's score and of an expert's count of tokens, as an all-to-all dispatcher sends them."""

FEW_NODES = 2
"""Nodes up to which an exchange over EFA is as fast in steps as in nccl-tests (``exchange_share``)."""

HAS_GRADIENT = 0.6
"""Share of the routing kernels that have a backward kernel, counted in the source: 24 of 40."""

ROUTER_PASSES = 12.0
"""Reads and writes of a token's 32-bit scores while its experts are chosen and counted: scores, their
softmax or sigmoid, top-k, map, probabilities and the loss that balances experts (Megatron Core,
router.py)."""

INDEXED_PASSES = 11.0, 17.0
"""Reads and writes of each copy of a token by torch's indexing kernels, forward and backward. Forward: gather
(2), a row of zeroes joined behind all copies (2), indexing into padded groups (2) and back (2), scatter with
addition (1 + 2). Backward: gather (2), indexing (2), that of padded groups, which adds up what may occur
twice (10), scatter with addition (1 + 2). Sources: torchtitan, models/moe (MoE.forward,
indices_padding_wrapper). The ten are of time: 1.85 ms on B200 and 1.80 ms on MI350 where join and indexing,
four passes, take 0.59 and 0.86 ms (196,608 copies of 2,048 elements; torchao, pull request 4623)."""

ROUTING = "routing"
"""Name of the op that chooses experts and prepares their dispatch."""


def expert_mlp(rank: Rank) -> list[Op]:
    """A mixture of experts with its dispatch.

    A device of the tensor-parallel group dispatches its own share of the tokens; experts sharded over
    ``expert_tensor`` ranks gather theirs first. Where tokens are replicated, each rank computes its own
    experts for all of them and the outputs are added up.
    """
    model, moe = rank.model, _moe(rank)
    replicated = rank.how.dispatcher == "replicated"
    own_tokens = rank.tokens if replicated else rank.tokens / rank.tensor
    return [
        *_shared(rank, moe),
        *linear(
            rank,
            "router",
            "down",
            moe.experts,
            model.hidden,
            part="mlp",
            tokens=own_tokens,
            dtype=rank.formats.core,
            keeps=rank.tokens * model.hidden / rank.spread if not moe.shared_experts else 0.0,
        ),
        *_sums(rank, moe, own_tokens * model.hidden),
        *_latent(rank, moe, own_tokens),
        *_routed(rank, moe, own_tokens),
        *([] if replicated else _dispatch(rank, moe, own_tokens)),
    ]


def shards_tokens(rank: Rank) -> bool:
    """Whether tensor-parallel ranks split the tokens of an expert layer; its MLP then has no reduction."""
    return not (_moe(rank).shared_experts or rank.how.dispatcher == "replicated")


def _moe(rank: Rank) -> MixtureOfExperts:
    if rank.model.moe is None:
        raise ValueError(f"{rank.model.name} has no expert layers")
    return rank.model.moe


def _width(rank: Rank, moe: MixtureOfExperts) -> int:
    """Width of what routed experts read and write."""
    return moe.latent or rank.model.hidden


def _latent(rank: Rank, moe: MixtureOfExperts, own_tokens: Array) -> Iterator[Op]:
    """Projections of the tokens to the width of routed experts, and of their sum back."""
    if not moe.latent:
        return
    hidden = rank.model.hidden
    for name, outputs, inputs in (
        ("latent_input", moe.latent, hidden),
        ("latent_output", hidden, moe.latent),
    ):
        yield from linear(rank, name, "down", outputs, inputs, part="mlp", tokens=own_tokens, bias=False)


def _shared(rank: Rank, moe: MixtureOfExperts) -> list[Op]:
    if not moe.shared_experts:
        return []
    return mlp_products(rank, "shared_", moe.shared_experts * moe.shared_feed_forward / rank.tensor)


def _sums(rank: Rank, moe: MixtureOfExperts, elements: Array) -> Iterator[Op]:
    """Sums of the gradients of router, routed and shared experts and of the experts' outputs (training)."""
    readers = 3 if moe.shared_experts else 2
    yield from gradient_sums(rank, "experts_input_sum", readers, elements, "around")
    if moe.shared_experts and not rank.how.joins_residual:
        count = passes.OUTPUT_SUM[rank.how.joins_sums]
        op = kernel(rank, "experts_output_sum", "elementwise", count, elements, part="around")
        yield op.changed(variant="elementwise")


def _routed(rank: Rank, moe: MixtureOfExperts, own_tokens: Array) -> Iterator[Op]:
    """Routed experts of one rank and the kernels around them."""
    how, model = rank.how, rank.model
    if how.experts == "fused-layer" and model.gated:
        yield _fused_layer(rank, moe, own_tokens)
        return
    replicated = how.dispatcher == "replicated"
    routed = (
        own_tokens * moe.top_k / rank.expert
        if replicated
        else own_tokens * moe.top_k * rank.expert_tensor * rank.load
    )
    local = moe.experts / rank.expert
    launches = {"per-expert": local, "fused-mlp": 1.0 + FUSED_LAUNCHES * local}.get(how.experts, 1.0)
    width, gates = moe.feed_forward / rank.expert_tensor, 2 if model.gated else 1
    wide = _width(rank, moe)
    for name, outputs, inputs in (("expert_up", gates * width, wide), (EXPERT_DOWN, wide, width)):
        yield from linear(
            rank,
            name,
            "expert",
            outputs,
            inputs,
            part="routed",
            tokens=routed / local,
            groups=local,
            launches=launches,
        )
    if how.separate_products and how.experts == "one":
        yield from gradient_sums(rank, "expert_inputs_sum", gates, routed * wide, "routed")
    fused = how.experts == "fused-mlp"
    if model.activation_limit and how.clamps_apart:
        yield kernel(rank, "expert_clamp", "activation", passes.CLAMP, routed * width, part="routed")
    active = activation(rank, "expert_activation", routed * width, "routed")
    # The products' epilogues run the activation; its saved bytes stay.
    yield active.changed(bytes=0.0, backward_bytes=0.0) if fused else active
    if model.bias:
        yield _biases(rank, moe, routed, local)
    if how.experts == "per-expert" and how.loop_launches:
        yield _loop(rank, routed * wide * rank.width, local)
    if how.weighs_apart and not replicated:
        yield from _scores(rank, own_tokens * moe.top_k * wide)
    if not replicated:
        yield from _routing(rank, moe, own_tokens)


def _fused_layer(rank: Rank, moe: MixtureOfExperts, own_tokens: Array) -> Op:
    """The fused call of serving engines, as calibrations measure it: routing kernels included."""
    replicated = rank.how.dispatcher == "replicated"
    wide = _width(rank, moe)
    parameters = 3.0 * moe.experts * wide * moe.feed_forward / (rank.expert * rank.expert_tensor)
    return ExpertLayer(
        name="experts",
        part="routed",
        tokens=own_tokens if replicated else own_tokens * rank.expert * rank.expert_tensor,
        hidden=wide,
        feed_forward=moe.feed_forward,
        top_k=moe.top_k,
        experts=moe.experts,
        tensor=rank.expert_tensor,
        expert_parallel=rank.expert,
        dtype=rank.formats.linear,
        parameters=parameters,
    )


def _biases(rank: Rank, moe: MixtureOfExperts, routed: Array, local: Array) -> Op:
    """Biases of the down projections of a rank's experts; beside fused experts they are no torch kernels."""
    elements = routed * _width(rank, moe)
    op = kernel(rank, "expert_bias", "elementwise", passes.EXPERT_BIAS, elements, part="routed")
    if rank.how.experts == "fused-mlp":
        op = op.changed(casts=0.0, backward_casts=0.0)
    return op.changed(launches=op.launches * local, backward_launches=op.backward_launches * local)


def _loop(rank: Rank, size: Array, local: Array) -> Op:
    """What a loop of torch over the experts of a rank adds to their products.

    The results are joined (read and written). Backward each expert's slice of the tokens is a gradient of all
    tokens, filled with zeros, and added to the sum of those before (torch, SliceBackward0: slice_backward).
    """
    return MemoryBound(
        name="expert_loop",
        kind="copy",
        part="routed",
        module="expert_loop",
        bytes=2.0 * size,
        launches=1.0 + rank.how.loop_launches * local,
        backward_bytes=4.0 * local * size,
        backward_launches=rank.how.loop_backward_launches * local,
    )


def _scores(rank: Rank, elements: Array) -> Iterator[Op]:
    """Weighting of the copies that the experts sent back by kernels of its own.

    DeepEP's path weighs inside the activation (torchtitan, distributed/deepep/fused_activation.py).
    """
    apart = 1.0 - _flex(rank)
    if not apart.any():
        return
    # Cases that weigh inside the activation run it no time, alone and among others.
    op = kernel(
        rank,
        "expert_scores",
        "elementwise",
        passes.EXPERT_SCORES,
        elements,
        part="routed",
        repeats=apart,
        saved=passes.EXPERT_SCORES_KEPT * elements * apart,
    )
    yield op.changed(passing=passes.EXPERT_SCORES_PASSING * elements * apart)


def _routing(rank: Rank, moe: MixtureOfExperts, own_tokens: Array) -> Iterator[Op]:
    """Kernels of the router and of permuting copies of tokens into the experts' order and back."""
    flex = _flex(rank)
    copied = own_tokens * _width(rank, moe) * rank.width
    permuted = back = _permutation(rank, moe, arrivals(rank, moe)) * copied
    if rank.how.indexes_copies:
        permuted, back = (
            np.where(flex, permuted, rank.load * moe.top_k * passed * copied) for passed in INDEXED_PASSES
        )
    scores = ROUTER_PASSES * 4.0 * own_tokens * moe.experts
    choices = ROUTER_LAUNCHES[rank.how.fused_router] - np.where(flex, FLEX_PREPARES, 0.0)
    copies = np.where(flex, DISPATCH_LAUNCHES[1], DISPATCH_LAUNCHES[0])
    if rank.how.fixed_capacity:
        dropping, padded = CAPACITY_LAUNCHES
        choices, copies = choices + dropping, np.where(flex, copies, padded)
    for name, kind, size, again, launches in (
        (ROUTING, "elementwise", scores, HAS_GRADIENT * scores, choices),
        ("permutation", "copy", permuted, back, copies),
    ):
        yield MemoryBound(
            name=name,
            kind=kind,
            part="routed",
            module=name,
            bytes=size,
            launches=launches,
            starts=launches,
            backward_bytes=again,
            backward_launches=HAS_GRADIENT * launches,
            backward_starts=HAS_GRADIENT * launches,
        )


def arrivals(rank: Rank, moe: MixtureOfExperts) -> Array:
    """Copies of a token sent to its experts, shape (cases,).

    An all-to-all sends one copy per expert. DeepEP and HybridEP send one copy to every rank of an NVLink
    domain, or to every other node, that holds any of the token's experts; the receiver duplicates it (DeepEP
    README; Megatron Core, deepseek-v3-gb200-optimization.md: no redundant communication). Groups, and
    experts within them, are chosen uniformly.
    """
    expert, domains = rank.expert, rank.expert * rank.expert_tensor / rank.how.domain
    places = np.where(domains > 1, np.minimum(domains, expert), expert)
    return np.where(_flex(rank), _visited(places, moe), float(moe.top_k))


def _visited(places: Array, moe: MixtureOfExperts) -> Array:
    """Mean number of ranks or nodes, with equal shares of the experts, that hold any of a token's experts."""
    anywhere = _different(places, moe.top_k)
    if moe.groups == 1:
        return anywhere
    # A rank or node holds several groups, or several of them hold one group.
    inside = moe.chosen_groups * _different(places / moe.groups, moe.top_k / moe.chosen_groups)
    grouped = np.where(places < moe.groups, _different(places, moe.chosen_groups), inside)
    return np.minimum(anywhere, grouped)


def _different(places: Array, draws: float) -> Array:
    """Mean number of distinct ranks or nodes among random draws."""
    return places * (1.0 - (1.0 - 1.0 / np.maximum(places, 1.0)) ** draws)


def _flex(rank: Rank) -> NDArray[np.bool_]:
    """Whether DeepEP or HybridEP dispatches, shape (cases,)."""
    spans = rank.expert * rank.expert_tensor > rank.how.node
    if rank.how.dispatcher == "flex-between-nodes":
        return spans
    return np.full(np.shape(spans), rank.how.dispatcher == "flex")


def _permutation(rank: Rank, moe: MixtureOfExperts, arrived: Array) -> Array:
    """Reads and writes of a token's hidden state while copies are permuted into the experts' order and back.

    Around an all-to-all: one copy an expert is written in the order of the ranks, sorted again on arrival
    where a rank has several experts, and both again on the way back (Megatron Core, token_dispatcher.py).
    DeepEP and HybridEP leave one permutation on arrival. At 8 bits the rows of every expert are copied once
    more into padded blocks and back (TEGroupedMLP's Fp8Padding); HybridEP's permutation includes this. The
    busiest rank receives ``load`` times the mean.
    """
    sorts = 4.0 * moe.top_k * (moe.experts > rank.expert)
    blocks = 4.0 * moe.top_k if rank.formats.linear in LOW_PRECISION else 0.0
    on_arrival = rank.load * (sorts + blocks)
    return np.where(_flex(rank), 2.0 * rank.load * (arrived + moe.top_k), 2.0 * (1 + moe.top_k) + on_arrival)


def _exchanged(rank: Rank, moe: MixtureOfExperts, own_tokens: Array, sends: NDArray[np.bool_]) -> Array:
    """Bytes that dispatch and combination return, shape (cases,); 0 where nothing is sent.

    An all-to-all returns one copy an expert, both times. DeepEP's dispatch returns the received tokens, each
    once, and HybridEP's their copies in the experts' order; both combine to a token's sum (torchtitan,
    distributed/deepep/deepep.py: dispatch_tokens permutes behind deepep::dispatch, combine_tokens sums before
    deepep::combine; hybridep.py: hybridep::dispatch permutes).
    """
    received = float(moe.top_k) if rank.how.flex_permutes else arrivals(rank, moe)
    copies = np.where(_flex(rank), rank.load * received + 1.0, (rank.load + 1.0) * moe.top_k)
    return np.where(sends, copies, 0.0) * own_tokens * _width(rank, moe) * rank.width


def _dispatch(rank: Rank, moe: MixtureOfExperts, own_tokens: Array) -> Iterator[Op]:
    """All-to-all to the experts and back, and the gather inside a sharded expert; backward the same.

    Around an all-to-all, all ranks gather the counts of every expert's tokens, and the copies' scores take an
    all-to-all of their own, there and for their gradient (Megatron Core, token_dispatcher.py:
    MoEAlltoAllTokenDispatcher, preprocess and token_dispatch).

    DeepEP and HybridEP send a token to every rank that shards one of its experts, and add up their outputs on
    the way back (Megatron Core, token_dispatcher.py: the flex dispatcher's group has all of them).
    """
    flex = _flex(rank)
    shards = np.where(flex, rank.expert_tensor, 1.0)
    e, et = rank.expert * shards, rank.expert_tensor / shards
    # The links of the busiest rank carry its share of the copies, to it and back.
    how, domains = rank.how, np.maximum(e * et / rank.how.domain, 1.0)
    copies = np.where(domains > 1, 1.0, shards) * arrivals(rank, moe)
    size = rank.load * copies * own_tokens * _width(rank, moe) * rank.width
    # A published rate counts copies to the own domain too, which never pass a NIC.
    abroad = 1 - 1 / domains
    network = how.flex_network * np.maximum(abroad, 0.5)
    measured, shares = np.array(how.flex_domain).T
    inside = np.interp(np.log2(e * et), np.log2(measured), shares)
    slower = np.where(domains > FEW_NODES, how.exchange_share, 1.0)
    faster = np.where(flex, np.where(domains > 1, network, inside), slower)
    between = flex & (domains > 1)
    messages = (
        rank.load * copies * own_tokens * abroad / how.flex_copies_per_s if how.flex_copies_per_s else 0.0
    )

    def send(
        name: str,
        operation: str,
        bytes_moved: Size,
        ranks: Size,
        stride: Size,
        repeats: Size = 1.0,
        inside_s: Size = 0.0,
    ) -> Op:
        forward = Collective(
            name=f"expert.{name}",
            kind="expert",
            part="routed",
            operation=operation,
            bytes=bytes_moved,
            size=ranks,
            stride=stride,
            speedup=faster if operation == "all_to_all" else 1.0,
            least_s=np.where(between, messages, inside_s) if operation == "all_to_all" else 0.0,
            start_s=np.where(between, how.flex_start_s, 0.0) if operation == "all_to_all" else 0.0,
            repeats=repeats,
        )
        return forward.changed(only_backward=(forward.changed(gradient="input"),))

    results = _exchanged(rank, moe, own_tokens, e > 1)
    if how.flex_combined_per_s is None:
        yield send("dispatch_and_combine", "all_to_all", size, e, et, 2.0).changed(results=results)
    else:
        # A combination's pipeline holds the same number of copies of its own tokens, wide or narrow.
        combined = np.where(flex & (e > 1), copies * own_tokens / how.flex_combined_per_s, 0.0)
        yield send("dispatch", "all_to_all", size, e, et).changed(results=results)
        yield send("combine", "all_to_all", size, e, et, inside_s=combined)
    apart = 1.0 - flex
    if apart.any() and not how.weighs_apart:
        scores = SCORE_BYTES * rank.load * moe.top_k * own_tokens
        yield send("scores", "all_to_all", scores, e, et, apart)
    if apart.any() and not how.fixed_capacity:
        counts = COUNT_BYTES * moe.experts * e
        yield send("counts", "all_gather", counts, e, et, apart).changed(only_backward=())
    yield send("gather", "all_gather", size * et, et, 1.0)
    yield send("scatter", "reduce_scatter", size * et, et, 1.0)
