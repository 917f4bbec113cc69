"""Time of decode attention over latent vectors (absorbed MLA): all query heads read one vector per token.

With few heads the cache's bytes bound it; 128 heads do 242 FLOPs per byte, so the matrix units bound it too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field

from hwmodels.kernels.attention import Array
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import power_norm
from hwmodels.loading import Strict


class LatentDecode(Strict):
    """Constants of the latent decode form; see `latent_decode_seconds`."""

    overhead_s: float = Field(default=5e-6, ge=0)
    """Start-up of the kernel and of the kernel that combines parts."""
    memory_efficiency: float = Field(default=0.89, gt=0)
    """Share of the bandwidth: 3,000 of 3,350 GB/s on H800 (FlashMLA README, 2025)."""
    compute_efficiency: float = Field(default=0.667, gt=0)
    """Share of the matrix peak: 660 of 989 TFLOP/s on H800 (FlashMLA README, 2025)."""
    overlap_exponent: float = Field(default=4.0, gt=0)
    rows: float = Field(default=64.0, gt=0)
    """Query heads of a thread block; fewer are padded."""


class LatentCache(NamedTuple):
    """Equal-shape arrays of calls: latent_dim is the width of both key and value, rope_dim of keys only."""

    batch: Array
    queries: Array
    seq_kv: Array
    heads: Array
    latent_dim: Array
    rope_dim: Array
    kv_bytes: Array | float


def latent_decode_seconds(form: LatentDecode, chip: Chip, call: LatentCache) -> Array:
    """Return kernel times in seconds of `queries` new tokens per sequence over their cached latent
    vectors."""
    batch, queries, seq_kv, heads, latent_dim, rope_dim, kv_bytes = call
    rows = form.rows * np.ceil(queries * heads / form.rows)
    flops = 2.0 * batch * rows * seq_kv * (2.0 * latent_dim + rope_dim)
    moved = batch * seq_kv * (latent_dim + rope_dim) * kv_bytes
    moved = moved + 2.0 * batch * queries * heads * (2.0 * latent_dim + rope_dim)
    compute = flops / (chip.peak * form.compute_efficiency)
    memory = moved / (chip.bandwidth * form.memory_efficiency)
    return form.overhead_s + power_norm(compute, memory, form.overlap_exponent)
