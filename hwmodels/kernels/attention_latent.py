"""Time of decode attention over latent vectors (absorbed MLA): all query heads read one vector per token.

With few heads the cache's bytes bound it; 128 heads do 242 FLOPs per byte, so the matrix units bound it too.
A thread block takes the heads of one sequence, or a part of its length: few sequences cannot fill the device.
"""

from typing import NamedTuple

import numpy as np
from pydantic import Field

from core.loading import Strict
from hwmodels.kernels.attention import Array
from hwmodels.kernels.attention_decode import SPLITS
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import power_norm, rounds

PART_BYTES = 4.0
"""Of an element of a part's output."""


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
    query_efficiency: float = Field(default=0.89, gt=0)
    """Share of the bandwidth at which queries and outputs move."""
    block_bandwidth: float | None = Field(default=None, gt=0)
    """Bytes/s of the cache that one multiprocessor reads; None: enough for few blocks to reach the rest."""
    block_overhead_s: float = Field(default=0.0, ge=0)
    combine_s: float = Field(default=0.0, ge=0)
    """Second pass over the parts of a split length; 10 % more for each doubling of the parts."""
    wave_quantisation: float = Field(default=0.0, ge=0, le=1)
    parts: float | None = Field(default=None, ge=1)
    """Parts of every length; None: as many as are fastest."""
    rereads: float = Field(default=0.0, ge=0, le=1)
    """Share of the cache that every further block of a sequence's heads reads from memory again."""


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
    blocks = np.ceil(queries * heads / form.rows)
    flops = 2.0 * form.rows * (2.0 * latent_dim + rope_dim)
    cached = (latent_dim + rope_dim) * kv_bytes
    peak = chip.peak * form.compute_efficiency
    core = batch * blocks * seq_kv * flops / peak
    if form.block_bandwidth is not None:
        key_s = power_norm(cached / form.block_bandwidth, flops * chip.multiprocessors / peak, 4.0)
        parts = 2.0 * PART_BYTES * batch * queries * heads * latent_dim
        part_s = parts / (chip.bandwidth * form.query_efficiency)
        core = _blocks_s(form, batch * blocks / chip.multiprocessors, seq_kv, key_s, part_s)
    reads = 1.0 + form.rereads * (blocks - 1.0)
    memory = batch * seq_kv * cached * reads / (chip.bandwidth * form.memory_efficiency)
    moved_bytes = 2.0 * batch * queries * heads * (2.0 * latent_dim + rope_dim)
    queries_s = moved_bytes / (chip.bandwidth * form.query_efficiency)
    return form.overhead_s + queries_s + power_norm(core, memory, form.overlap_exponent)


def _blocks_s(form: LatentDecode, waves: Array, length: Array, key_s: Array, part_s: Array) -> Array:
    """Return the seconds of all blocks, and of combining their parts, at the fastest split of the lengths.

    Args:
        form: fitted constants.
        waves: blocks without a split over multiprocessors.
        length: keys of a sequence.
        key_s: time of one key in a block.
        part_s: time to write and read one part of every output.
    """
    best: Array = np.full((), np.inf)
    for split in SPLITS if form.parts is None else (form.parts,):
        block_s = key_s * np.ceil(length / split) + form.block_overhead_s
        seconds = rounds(waves * split, form.wave_quantisation) * block_s
        if split > 1.0:
            seconds = seconds + form.combine_s * (1.0 + 0.1 * np.log2(split)) + split * part_s
        best = np.minimum(best, seconds)
    return best
