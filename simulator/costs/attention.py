"""Attention of one layer: projections, core, and the exchange of keys and values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simulator.costs.linear import Linears
from simulator.costs.setting import Setting
from simulator.costs.work import Transfer, Work
from simulator.ops import elementwise as passes
from simulator.plan import ALL_GATHER, RING, ULYSSES, Plans

FLASH_2 = "flash-attention-2"
"""What calibrations call FlashAttention-2's kernels. On Hopper they are too slow to meet the power limit that
slows the newer ones down, so their own measurements count where a calibration has them."""

OLDER_KERNELS = {
    ("flash-1", "ampere"): (0.65, 0.55),
    ("flash-1", "hopper"): (0.37, 0.33),
    ("flash-2", "hopper"): (0.57, 0.57),
    ("flash-2", "blackwell"): (0.45, 0.45),
}
"""Speed of older attention kernels over the fastest one of a device generation, for heads of up to 64 and
of more. On A100 FlashAttention-1 reaches 107 of FlashAttention-2's 171 TFLOP/s with heads of 64 and about
half of it with heads of 128 (Dao 2023, figure 4, causal, forward and backward); on H100 FlashAttention-2
reaches 370 of FlashAttention-3's 648 forward and the same share backward (Shah et al. 2024, figures 5 and
6); on Blackwell it runs without the new tensor-core instructions."""

UNALIGNED_SHARE = 0.63
"""Share of the 32-bit vector peak that a batched product of 16-bit matrices reaches where rows do not start
on 16 bytes: cuBLAS of CUDA 11 has no tensor-core kernel for it. 12.2 of A100's 19.5 TFLOP/s (PyTorch issue
83272, 384 products of 1024 x 1024 by 1024 x 140, bf16, CUDA 11.6)."""


@dataclass
class Attention:
    """One attention block: kernels by pass, the core alone, and context-parallel communication."""

    linears: Linears
    core_forward: Work
    core_backward: Work
    context_forward: Transfer
    context_backward: Transfer


def attention(setting: Setting, plans: Plans) -> Attention:
    """Cost of one attention block on one device and one micro batch; arrays of shape (plans,)."""
    linears = _projections(setting, plans)
    forward, backward = _core(setting, plans)
    context_forward, context_backward = _exchange(setting, plans, forward, backward)
    return Attention(linears, forward, backward, context_forward, context_backward)


def _heads(setting: Setting, plans: Plans) -> tuple[np.ndarray, np.ndarray]:
    """Query and key-value heads on one tensor-parallel rank; key-value heads are copied when too few."""
    model = setting.model
    return model.heads / plans.tensor, np.maximum(model.kv_heads / plans.tensor, 1.0)


def _projections(setting: Setting, plans: Plans) -> Linears:
    model = setting.model
    tokens = setting.tokens(plans)
    heads, kv_heads = _heads(setting, plans)
    linears = Linears(setting, tokens)
    if model.mla:
        mla = model.mla
        if mla.q_lora_rank:
            linears.add("down", mla.q_lora_rank, model.hidden)
            linears.add("column", heads * model.head_dim, mla.q_lora_rank)
        else:
            linears.add("column", heads * model.head_dim, model.hidden)
        linears.add("down", mla.kv_lora_rank + mla.qk_rope_head_dim, model.hidden)
        linears.add("column", heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank)
        linears.add("row", model.hidden, heads * mla.v_head_dim)
    else:
        linears.add("column", (heads + 2 * kv_heads) * model.head_dim, model.hidden)
        linears.add("row", model.hidden, heads * model.head_dim)
    return linears


def _core(setting: Setting, plans: Plans) -> tuple[Work, Work]:
    """Rotary embedding and softmax(QK^T)V of the heads of one rank, forward and backward."""
    model, fusion = setting.model, setting.framework.elementwise
    heads, kv_heads = _heads(setting, plans)
    tokens = setting.tokens(plans)
    forward, backward = Work(), Work()
    query_key = tokens * (heads + kv_heads) * model.head_dim
    if model.position == "rope":
        _add_passes(setting, forward, backward, "rope", passes.ROTARY[fusion], query_key)
    if model.qk_norm:
        for width in (heads, kv_heads):
            _add_passes(setting, forward, backward, "norm", passes.NORM, tokens * width * model.head_dim)
    if model.mla:
        latent = model.mla.kv_lora_rank + (model.mla.q_lora_rank or 0)
        _add_passes(setting, forward, backward, "norm", passes.NORM, tokens * latent)
    if setting.framework.attention != "unfused":
        forward.add("attention", _flash(setting, plans, heads, kv_heads, "forward"), 1)
        backward.add("attention", _flash(setting, plans, heads, kv_heads, "backward"), 3)
        copies = passes.JOIN_HEADS[fusion]
        _merge_blocks(setting, plans, forward, backward)
        if setting.framework.splits_projection and model.position == "rope":
            _split_projection(setting, forward, backward, tokens * model.head_dim, heads, kv_heads)
    else:
        _unfused(setting, plans, heads, forward, backward)
        copies = passes.SPLIT_HEADS[fusion]
    copied = tokens * (heads + 2 * kv_heads) * model.head_dim
    _add_passes(setting, forward, backward, "copy", copies, copied)
    return forward, backward


def _split_projection(
    setting: Setting,
    forward: Work,
    backward: Work,
    elements: np.ndarray,
    heads: np.ndarray,
    kv_heads: np.ndarray,
) -> None:
    """Copies that take query, key and value out of one projection's output, and their gradients back.

    Rotating writes query and key anew, so that values no longer lie beside them: attention copies them.
    Queries of grouped heads are not contiguous and are copied before. Backward joins the three gradients.
    ``elements`` are those of one head.
    """
    grouped = setting.model.heads > setting.model.kv_heads
    copied = elements * (kv_heads + (heads if grouped else 0))
    width, joined = setting.width, elements * (heads + 2 * kv_heads)
    forward.add_bytes(setting.kernels, "copy", 2 * width * copied, 2 if grouped else 1)
    backward.add_bytes(setting.kernels, "copy", 2 * width * joined, 1)


def _merge_blocks(setting: Setting, plans: Plans, forward: Work, backward: Work) -> None:
    """Memory traffic of ring attention beside the blocks' kernels.

    Forward, keys and values are packed for the neighbour (2 passes), the output is cleared (1) and every
    block's output scaled and added to it (3). Backward, the gradients of queries are copied (2) or added (3),
    those of keys and values packed and added to the ones that travel (5). A causal mask leaves half of the
    blocks from other ranks half of the queries. Read in Transformer Engine 1.x,
    attention.py: AttnFuncWithCPAndKVP2P.
    """
    model, c = setting.model, plans.context
    ring = (plans.context_algorithm == RING) & (c > 1)
    if not np.any(ring):
        return
    heads, kv_heads = _heads(setting, plans)
    size = setting.tokens(plans) * model.head_dim * setting.width
    query, pair = size * heads, size * 2 * kv_heads
    others = (c - 1) * (0.75 if setting.training.causal else 1.0)
    for work, moved, launches in (
        (forward, (1 + 3 * (1 + others)) * query + 2 * pair, 2 + 2 * c),
        (backward, (2 + 3 * others) * query + (2 + 5 * c) * pair, 3 * c),
    ):
        work.add("copy", ring * setting.kernels.memory_bound(moved, "copy"), ring * launches)


def _flash(
    setting: Setting, plans: Plans, heads: np.ndarray, kv_heads: np.ndarray, direction: str
) -> np.ndarray:
    """Fused attention over the sequence blocks that one context-parallel rank sees.

    Ring and all-gather attention balance the causal triangle by giving every rank two slices from
    opposite ends (Megatron Core, Llama 3): one causal block of s/c and c-1 full ones of half its width.
    Ulysses shards heads instead of the sequence.
    """
    model, training, kernels = setting.model, setting.training, setting.kernels
    older, generation = setting.framework.attention, setting.cluster.device.generation
    if older in ("flash-1", "flash-2") and FLASH_2 in kernels.calibration.libraries:
        kernels = kernels.using(FLASH_2)
        # Both versions run the A100's instructions: their ratio is the A100's.
        generation = "ampere"
    c = plans.context
    ulysses = plans.context_algorithm == ULYSSES
    local_heads = np.where(ulysses, np.maximum(heads / c, 1), heads)
    local_kv = np.where(ulysses, np.maximum(kv_heads / c, 1), kv_heads)
    block = np.where(ulysses, training.seq_len, training.seq_len / c)
    shape = {
        "heads": local_heads,
        "kv_heads": local_kv,
        "head_dim": model.head_dim,
        "dtype": setting.core_dtype,
    }
    shape |= {"direction": direction, "v_head_dim": model.v_head_dim}
    b = plans.micro_batch
    seconds = kernels.attention(b, block, block, causal=training.causal, **shape)
    if np.any((c > 1) & ~ulysses):
        width = block / 2 if training.causal else block
        other = kernels.attention(b, block, width, causal=False, **shape)
        seconds = seconds + np.where(ulysses, 0, (c - 1) * other)
    narrow, wide = OLDER_KERNELS.get((older, generation), (1.0, 1.0))
    return seconds * _visible_share(setting) / (narrow if model.head_dim <= 64 else wide)


def _visible_share(setting: Setting) -> float:
    """Share of the attention matrix that sliding windows leave, averaged over the layers."""
    model, s = setting.model, setting.training.seq_len
    if model.sliding_window is None or model.sliding_window >= s:
        return 1.0
    sliding = model.layers_of_kind("sliding") / model.layers
    full_area = s * (s + 1) / 2 if setting.training.causal else s * s
    w = model.sliding_window
    area = w * (w + 1) / 2 + (s - w) * w
    return 1.0 - sliding + sliding * area / full_area


def _unfused(setting: Setting, plans: Plans, heads: np.ndarray, forward: Work, backward: Work) -> None:
    """Attention as matrix products and a softmax over the whole s x s matrix, masked or not."""
    training, kernels, dtype = setting.training, setting.kernels, setting.core_dtype
    d = setting.model.head_dim
    rows = training.seq_len / plans.context
    batch = plans.micro_batch * heads
    scores = kernels.batched_gemm(batch, rows, training.seq_len, d, dtype)
    values = kernels.batched_gemm(batch, rows, d, training.seq_len, dtype)
    both = _unaligned(setting, scores + values, 4 * batch * rows * training.seq_len * d)
    forward.add("attention", both, 2)
    backward.add("attention", 2 * both, 4)
    matrix = batch * rows * training.seq_len
    count = passes.SOFTMAX[setting.framework.elementwise, setting.dropout]
    _add_passes(setting, forward, backward, "softmax", count, matrix)


def _unaligned(setting: Setting, aligned: np.ndarray, flops: np.ndarray) -> np.ndarray:
    """Seconds of batched products of heads, from those that they take where their rows start on 16 bytes."""
    device = setting.cluster.device
    loaded = math.gcd(setting.model.head_dim * setting.width, 16)
    if loaded == 16:
        return aligned
    if device.vendor == "nvidia" and setting.width == 2:
        return np.maximum(aligned, flops / (UNALIGNED_SHARE * device.peak("fp32")))
    # Others keep their matrix units, but load in pieces of 8, 4 or 2 bytes.
    return aligned * 16 / loaded


def _add_passes(
    setting: Setting, forward: Work, backward: Work, kind: str, count: passes.Passes, elements: np.ndarray
) -> None:
    size = elements * setting.width
    forward.add_bytes(setting.kernels, kind, count.forward * size, count.forward_launches)
    backward.add_bytes(setting.kernels, kind, count.backward * size, count.backward_launches)


def _exchange(setting: Setting, plans: Plans, forward: Work, backward: Work) -> tuple[Transfer, Transfer]:
    """Context-parallel traffic of one layer: what is moved, and what attention does not hide.

    Ring: keys and values travel c-1 times to the neighbour while a block is computed, and their gradients
    with them in the backward pass. All-gather: one gather forward, one gather and one reduce-scatter
    backward, not hidden (Llama 3, section 3.3.2). Ulysses: all-to-all of q, k, v and the output.
    """
    model, cluster = setting.model, setting.cluster
    heads, kv_heads = _heads(setting, plans)
    c, t = plans.context, plans.tensor
    zero = np.zeros(len(plans))
    if not np.any(c > 1):
        return Transfer(zero, zero), Transfer(zero, zero)
    tokens = setting.tokens(plans)
    # A key and a value, or a query and its output, of one head.
    pair = tokens * (model.head_dim + model.v_head_dim) * setting.width
    kv = pair * kv_heads

    hop = cluster.collective("send_receive", kv, c, t)
    ring = (c - 1) * hop
    hidden = (c - 1) / c
    gather = cluster.collective("all_gather", kv * c, c, t)
    scatter = cluster.collective("reduce_scatter", kv * c, c, t)
    swap = sum(cluster.collective("all_to_all", part, c, t) for part in (pair * heads, kv))

    choice = [plans.context_algorithm == ALL_GATHER, plans.context_algorithm == ULYSSES]
    total_forward = np.select(choice, [gather, swap], ring)
    total_backward = np.select(choice, [gather + scatter, swap], 2 * ring)
    shown_forward = np.select(choice, [gather, swap], np.maximum(ring - hidden * forward.device, 0))
    shown_backward = np.select(
        choice, [gather + scatter, swap], np.maximum(2 * ring - hidden * backward.device, 0)
    )
    active = c > 1
    return (
        Transfer(np.where(active, total_forward, 0), np.where(active, shown_forward, 0)),
        Transfer(np.where(active, total_backward, 0), np.where(active, shown_backward, 0)),
    )
