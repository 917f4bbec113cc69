"""Seconds of the ops of one kernel class, from their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from hwmodels.generation import generations
from simulator.ops.attention import NARROW
from simulator.ops.op import (
    Attention,
    Collective,
    Decode,
    ExpertLayer,
    MemoryBound,
    Product,
    Scan,
    StateStep,
)
from simulator.pricing.prices import Prices

Array = NDArray[np.floating]

NARROW_ATTENTION = {
    "gb200": {"forward": (1.03, 1.24), "backward": (1.13, 1.22)},
    "gb300": {"forward": (1.2, 1.49), "backward": (1.16, 1.38)},
}
"""Speed of cuDNN's attention in MXFP8 over that in 16 bits, by device and direction, for heads of up to 64
and of more (cudnn-frontend, benchmark/sdpa_benchmark_training/results, causal). Heads of 192 and 128: means
at 4,096 and 8,192 positions, cuDNN 9.24 (dsv3, 2026-06-13). Heads of 64: 2,048 positions in 8 bits with one
scale a tensor, cuDNN 9.19 (gpt_oss, 2026-02-26), whose backward pass computes the quarter of the scores
outside the window that the 16-bit kernel skips. B200 and B300 take the figures of the same chips."""
NARROW_ATTENTION |= {"b200": NARROW_ATTENTION["gb200"], "b300": NARROW_ATTENTION["gb300"]}

FLASH_2 = "flash-attention-2"
"""Name of FlashAttention-2's kernels in calibrations. On Hopper they stay below the power limit that slows
the newer kernels down, so separate measurements are used where a calibration has them."""

LIBRARIES = {
    "flash-1": FLASH_2,
    "flash-1-triton": FLASH_2,
    "flash-2": FLASH_2,
    "flash-torch": FLASH_2,
    "flash-3": "flash-attention-3",
}
"""Libraries of attention kernels that calibrations may measure apart, by version."""

AT_FULL_CLOCKS = ("flash-1", "flash-1-triton", "flash-2")
"""Versions whose share of the fastest kernel's speed comes from timed kernels: they are too slow to reach the
power limit. Other shares come from steps, at settled clocks."""

UNALIGNED_SHARE = 0.63
"""Share of the 32-bit vector peak that a batched product of 16-bit matrices reaches where rows do not start
on 16 bytes: cuBLAS of CUDA 11 has no tensor-core kernel for it. 12.2 of A100's 19.5 TFLOP/s (PyTorch issue
83272, 384 products of 1024 x 1024 by 1024 x 140, bf16, CUDA 11.6)."""


# One function per kernel class: (ops of one key, prices, sizes of shape (ops, cases)) -> seconds.


def _products(ops: list[Product], prices: Prices, groups: Array, m: Array, n: Array, k: Array) -> Array:
    kernels, first = prices.kernels, ops[0]
    windows = np.array([op.window for op in ops]).reshape(-1, *(1,) * (np.ndim(m) - 1))
    seconds = kernels.batched_gemm(groups, m, n, k, first.dtype, [op.layout for op in ops], windows)
    flops = 2 * groups * m * n * k
    if first.weights:
        if not kernels.measures_experts:
            seconds = _in_turn(ops, prices, seconds, (groups, m, n, k))
        seconds = np.maximum(prices.cold * seconds, kernels.settled_seconds(flops, first.dtype))
        shares = np.array([kernels.expert_share(op.layout) if op.role == "expert" else 1.0 for op in ops])
        seconds = seconds * shares.reshape(-1, *(1,) * (seconds.ndim - 1))
    else:
        seconds = _unaligned(first, prices, seconds, flops)
    return seconds / prices.product_share


def _in_turn(ops: list[Product], prices: Prices, together: Array, sizes: tuple[Array, ...]) -> Array:
    """Seconds of products, from those side by side: see ``Product.in_turn``."""
    rows = [row for row, op in enumerate(ops) if op.in_turn]
    if not rows:
        return together
    groups, m, n, k = (np.broadcast_to(size, together.shape)[rows] for size in sizes)
    kernels, dtype = prices.kernels, ops[0].dtype
    alone = groups * kernels.batched_gemm(1.0, m, n, k, dtype, [ops[row].layout for row in rows])
    shares = np.array([ops[row].in_turn for row in rows]).reshape(-1, *(1,) * (together.ndim - 1))
    seconds = together.copy()
    seconds[rows] += shares * np.maximum(alone - together[rows], 0.0)
    return seconds


def _unaligned(op: Product, prices: Prices, aligned: Array, flops: Array) -> Array:
    """Seconds of batched products of heads, from the seconds with rows aligned to 16 bytes."""
    if op.row_bytes == 16:
        return aligned
    device = prices.kernels.device
    if (
        prices.cluster is not None
        and prices.cluster.device.vendor == "nvidia"
        and op.dtype in ("bf16", "fp16")
    ):
        return np.maximum(aligned, flops / (UNALIGNED_SHARE * device.peak("fp32")))
    # Other alignments keep the matrix units, but load 8, 4 or 2 bytes at a time.
    full = device.generation.lane_bytes
    return aligned * np.maximum(full / op.row_bytes, 1.0)


def _served_products(
    ops: list[Product], prices: Prices, groups: Array, m: Array, n: Array, k: Array
) -> Array:
    seconds = prices.kernels.gemm(m, n, k, ops[0].dtype, quantises=prices.quantises)
    if ops[0].weights and prices.served:
        seconds = np.maximum(seconds, prices.kernels.cold_read_seconds(n, k, ops[0].dtype))
    return prices.cold * seconds


def _grouped_products(
    ops: list[Product], prices: Prices, groups: Array, m: Array, n: Array, k: Array
) -> Array:
    return prices.cold * prices.kernels.grouped_gemm(m * groups, n, k, groups, ops[0].dtype)


def _attention(ops: list[Attention], prices: Prices, *sizes: Array) -> Array:
    first, kernels = ops[0], prices.kernels
    sequences, queries, keys, heads, kv_heads, head_dim, v_head_dim = sizes
    older, generation = first.version, kernels.device.generation
    library = LIBRARIES.get(older)
    if library in kernels.calibration.libraries:
        kernels = kernels.using(library)
        # FlashAttention-1 and 2 run the A100's instructions: their ratio is the A100's.
        generation = generations.get("ampere") if library == FLASH_2 else generation
    narrow, wide = generation.older(older)
    if older == NARROW:
        narrow, wide = _narrow_attention(kernels.device.name)[first.direction]
    share = np.where(head_dim <= 64, narrow, wide)
    timed = older in AT_FULL_CLOCKS
    seconds = kernels.attention(
        sequences,
        queries,
        keys,
        heads,
        kv_heads,
        head_dim,
        causal=first.causal,
        dtype=first.dtype,
        direction=first.direction,
        v_head_dim=v_head_dim,
        appends=first.appends,
        kv_dtype=first.kv_dtype,
        latent=first.latent,
        share=share if timed else 1.0,
    )
    return seconds if timed else seconds / share


def _narrow_attention(device: str) -> Mapping[str, tuple[float, float]]:
    """Speeds of 8-bit attention on a device, by direction.

    Raises:
        InputError: nobody measured it on the device.
    """
    if device not in NARROW_ATTENTION:
        formats = ", ".join(NARROW_ATTENTION)
        raise InputError(f"attention {NARROW!r} is not measured on {device!r}; measured on: {formats}")
    return NARROW_ATTENTION[device]


def _decode(ops: list[Decode], prices: Prices, *sizes: Array) -> Array:
    first, kernels = ops[0], prices.kernels
    sequences, keys, heads, kv_heads, head_dim, v_head_dim = sizes
    if first.latent:
        # The cached vector is the latent one, which is key and value, and the rotary part of keys.
        return kernels.mla_decode(
            sequences,
            keys,
            heads,
            v_head_dim,
            head_dim - v_head_dim,
            dtype=first.dtype,
            kv_dtype=first.kv_dtype,
        )
    return kernels.attention_decode(
        sequences, keys, heads, kv_heads, head_dim, first.dtype, kv_dtype=first.kv_dtype
    )


def _scan(ops: list[Scan], prices: Prices, *sizes: Array) -> Array:
    sequences, tokens, heads, key_heads, key_dim, value_dim, chunk, delta = sizes
    shape = key_dim, value_dim, chunk, key_heads, delta
    first = ops[0]
    return prices.kernels.linear_attention(sequences, tokens, heads, *shape, first.dtype, first.direction)


def _state_step(ops: list[StateStep], prices: Prices, *sizes: Array) -> Array:
    return prices.kernels.linear_decode(*sizes, dtype=ops[0].dtype)


def _experts(ops: list[ExpertLayer], prices: Prices, *sizes: Array) -> Array:
    op, kernels = ops[0], prices.kernels
    return kernels.expert_layer(*sizes, dtype=op.dtype, skewed=op.skewed, popular=prices.served)


def _memory_bound(
    ops: list[MemoryBound], prices: Prices, bytes_: Array, starts: Array, casts: Array
) -> Array:
    kinds = [op.variant or op.kind for op in ops]
    seconds = prices.kernels.memory_bound_kinds(bytes_, kinds)
    if casts.any():
        seconds = seconds + prices.kernels.cast_wait(casts)
    if np.all(starts == 1):
        return seconds
    start = prices.kernels.memory_bound_kinds(np.zeros(len(kinds)), kinds)
    return seconds + (starts - 1) * start.reshape(-1, *(1,) * (seconds.ndim - 1))


def _collective(
    ops: list[Collective],
    prices: Prices,
    bytes_: Array,
    size: Array,
    stride: Array,
    speedup: Array,
    least: Array,
    start: Array,
) -> Array:
    if prices.cluster is None:
        raise ValueError("collectives are priced on a cluster")
    # A library's rate scales the time of bytes, not the start-up of a message.
    seconds = prices.cluster.collective(ops[0].operation, bytes_ / speedup, size, stride)
    return np.maximum(seconds, least) + start


def _product_sizes(op: Product) -> tuple[Any, ...]:
    return op.groups, op.m, op.n, op.k


CALLS: dict[str, tuple[Callable[..., Array], Callable[[Any], tuple[Any, ...]]]] = {
    "products": (_products, _product_sizes),
    "served": (_served_products, _product_sizes),
    "grouped": (_grouped_products, _product_sizes),
    "attention": (
        _attention,
        lambda op: (
            op.sequences,
            op.queries,
            op.keys,
            op.heads,
            op.kv_heads,
            op.head_dim,
            op.v_head_dim,
        ),
    ),
    "decode": (
        _decode,
        lambda op: (op.sequences, op.keys, op.heads, op.kv_heads, op.head_dim, op.v_head_dim),
    ),
    "scan": (
        _scan,
        lambda op: (
            op.sequences,
            op.tokens,
            op.heads,
            op.key_heads,
            op.key_dim,
            op.value_dim,
            op.chunk,
            op.delta,
        ),
    ),
    "state": (_state_step, lambda op: (op.sequences, op.heads, op.key_dim, op.value_dim)),
    "experts": (
        _experts,
        lambda op: (
            op.tokens,
            op.hidden,
            op.feed_forward,
            op.top_k,
            op.experts,
            op.tensor,
            op.expert_parallel,
        ),
    ),
    "memory": (_memory_bound, lambda op: (op.bytes, op.starts, op.casts)),
    "collective": (
        _collective,
        lambda op: (op.bytes, op.size, op.stride, op.speedup, op.least_s, op.start_s),
    ),
}
"""Pricing of kernel classes: the function, and the sizes that it takes."""
