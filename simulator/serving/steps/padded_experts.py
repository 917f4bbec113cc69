"""Experts in DeepGEMM's contiguous layout, as vLLM 0.11 runs those in block-scaled fp8.

The host does not know how many tokens each expert has, so both products run over the most rows that there
may be: all copies of tokens, and 127 more for each expert of the rank, since the rows of an expert begin at
a multiple of 128 (vllm v0.11 deep_gemm_utils.py, compute_aligned_M). Rows without a token are computed with
some expert's weights (deepgemm_moe_permute: expert_ids are zeros at first).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.grouped_gemm import SERVED_READ_SHARE, uniform_hits
from simulator.ops import ExpertLayer, Product
from simulator.pricing import Prices, price

Array = NDArray[np.float64]

BLOCK = 128
"""Rows of a block of one expert."""
ACTIVATION_BYTES = 9.0
"""Bytes of one inner element that pass between both products: the activation reads two of 16 bits and writes
one, the quantisation reads it and writes 8 bits (two kernels: vllm v0.11 deep_gemm_moe.py)."""


def padded_seconds(layer: ExpertLayer, prices: Prices) -> Array:
    """Return the seconds of an expert layer on one rank.

    Args:
        layer: the experts; `tokens` are those of all ranks.
        prices: of dense products in the same library, whose kernels have the same tiles.
    """
    tokens = np.asarray(layer.tokens, dtype=np.float64)
    local = layer.experts / np.asarray(layer.expert_parallel, dtype=np.float64)
    width = layer.feed_forward / np.asarray(layer.tensor, dtype=np.float64)
    rows = tokens * layer.top_k + (BLOCK - 1) * local
    wide = Product(name="expert_up", part="experts", m=rows, n=2.0 * width, k=layer.hidden, dtype=layer.dtype)
    both = (wide, wide.changed(name="expert_down", n=layer.hidden, k=width))
    computed = sum(price(both, prices), start=np.zeros(()))
    kernels = prices.kernels
    hits = uniform_hits(tokens, np.asarray(layer.top_k), np.asarray(layer.experts)) / layer.expert_parallel
    weights = hits * 3.0 * layer.hidden * width
    read = weights / (SERVED_READ_SHARE * kernels.device.memory_bandwidth)
    passes = kernels.memory_bound(ACTIVATION_BYTES * rows * width, "activation")
    return np.where(tokens > 0, np.maximum(computed, read) + passes, 0.0)
