"""Block-scaled fp8 products in DeepGEMM, as vLLM 0.11 and 0.12 run them, and in FlashInfer.

Experts run in its contiguous layout. The host does not know how many tokens each expert has, so both
products run over the most rows that there may be: all copies of tokens, and 127 more for each expert of
the rank, since the rows of an expert begin at a multiple of 128 (vllm v0.11 deep_gemm_utils.py,
compute_aligned_M). Rows without a token are computed with some expert's weights (deepgemm_moe_permute:
expert_ids are zeros at first).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels import KernelModel
from hwmodels.kernels.grouped_gemm import SERVED_READ_SHARE, uniform_hits
from simulator.ops import ExpertLayer, Product
from simulator.pricing import Prices, price

Array = NDArray[np.float64]

BLOCK = 128
"""Rows of a block of one expert; rows and columns of weights, and columns of activations, that share a
scale."""
ACTIVATION_BYTES = 9.0
"""Bytes of one inner element that pass between both products: the activation reads two of 16 bits and writes
one, the quantisation reads it and writes 8 bits (two kernels: vllm v0.11 deep_gemm_moe.py)."""
EXPOSED_READ = 0.7
"""Share of the time of reading weights that products do not hide, since every block of rows reads
weights that no other block does. From DeepSeek-V3's layer on H100 (vLLM pull 13932; tensor degrees 1 to
8, 128 to 2,048 tokens): what is left of its times is then the same at all degrees, 0.96 ms and 0.92 us
a token, which is the permutation that 0.11 no longer has."""

FLASHINFER_RATE = 3.0e12
"""FLOP/s of one multiprocessor of Blackwell in FlashInfer's TRT-LLM products: 437 and 442 TFLOP/s on B200 at
1,024 and 2,048 tokens (24,576 x 7,168 weights), 403 at 256, where DeepGEMM reaches 2,470 and 2,770
(sgl-project/sglang, pull 13528)."""


def padded_seconds(layer: ExpertLayer, prices: Prices, packs: bool, sent: bool = False) -> Array:
    """Return the seconds of an expert layer on one rank.

    Args:
        layer: the experts; `tokens` are those of all ranks.
        prices: of dense products in the same library, whose kernels have the same tiles.
        packs: whether scales are packed at every call.
        sent: whether DeepEP brought each rank its own copies: the rows are these, and on average half a block
            more for each expert that has any. A token arrives once a rank, is copied to its experts' rows in
            8 bits, and outputs are gathered in 16 (SGLang v0.5.9 ep_moe/kernels.py: ep_scatter, ep_gather).
    """
    tokens = np.asarray(layer.tokens, dtype=np.float64)
    local = layer.experts / np.asarray(layer.expert_parallel, dtype=np.float64)
    width = layer.feed_forward / np.asarray(layer.tensor, dtype=np.float64)
    hits = uniform_hits(tokens, np.asarray(layer.top_k), np.asarray(layer.experts)) / layer.expert_parallel
    copies = tokens * layer.top_k
    rows = copies / layer.expert_parallel + BLOCK / 2 * hits if sent else copies + (BLOCK - 1) * local
    wide = Product(name="expert_up", part="experts", m=rows, n=2.0 * width, k=layer.hidden, dtype=layer.dtype)
    both = (wide, wide.changed(name="expert_down", n=layer.hidden, k=width))
    seconds = np.sum(price(both, prices), axis=0)
    kernels = prices.kernels
    weights = hits * 3.0 * layer.hidden * width
    seconds += EXPOSED_READ * weights / (SERVED_READ_SHARE * kernels.device.memory_bandwidth)
    seconds += kernels.memory_bound(ACTIVATION_BYTES * rows * width, "activation")
    seconds += kernels.expert_start(layer.dtype)
    if sent:
        arrived = tokens * -np.expm1(layer.top_k * np.log1p(-1.0 / np.asarray(layer.expert_parallel)))
        copied_bytes = 3.0 * layer.hidden * (copies / layer.expert_parallel + arrived)
        seconds += kernels.memory_bound(copied_bytes, "copy")
    if packs:
        seconds += packing_seconds(both[0], kernels, local) + packing_seconds(both[1], kernels, local)
    return np.where(tokens > 0, seconds, 0.0)


def packing_seconds(product: Product, kernels: KernelModel, matrices: Array | float = 1.0) -> Array:
    """Return the seconds in which DeepGEMM brings a product's scales into Blackwell's layout.

    One scale of 32 bits is for 128 x 128 weights. A call repeats it for each row of the weights, by
    indices of two kernels, and packs it in 8 bits; scales of activations are packed alone (DeepGEMM
    csrc/apis/layout.hpp, transform_sf_into_required_layout: FP32, 128, 128 on SM100).

    Args:
        product: one of equal products.
        kernels: of the device.
        matrices: number of weight matrices, one for each expert.
    """
    rows, columns = np.asarray(product.n, dtype=np.float64), np.asarray(product.k, dtype=np.float64) / BLOCK
    repeated = matrices * rows * columns
    moves = 8.0 * rows, 16.0 * rows, 4.0 * repeated, 5.0 * repeated, 5.0 * np.asarray(product.m) * columns
    seconds = np.zeros(())
    for bytes_ in moves:
        seconds = seconds + kernels.memory_bound(bytes_)
    return seconds


def flashinfer_seconds(product: Product, kernels: KernelModel, seconds: Array) -> Array:
    """Return the seconds of a product in FlashInfer.

    Args:
        product: of the step.
        kernels: of the device.
        seconds: in DeepGEMM, which reads the weights as fast.
    """
    rate = FLASHINFER_RATE * kernels.device.multiprocessors
    return np.maximum(seconds, np.asarray(product.flops, dtype=np.float64) / rate)
