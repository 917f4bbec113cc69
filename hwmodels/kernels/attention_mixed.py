"""Time of attention in a step that mixes a prefill chunk with decodes.

Engines that call FlashAttention-2 once for all sequences (vLLM on Ampere, Ada and RTX Blackwell) run decodes
in the prefill kernel: one thread block per query head, not per key-value head, and no split of long caches. A
block of one query row takes half of a full block's time per key, since its softmax has one row. Heads of one
group share cache reads only while they run concurrently.
"""

from typing import NamedTuple

import numpy as np
from pydantic import Field

from core.loading import Strict
from hwmodels.kernels.attention import Array, FlashAttention
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import power_norm


class DecodesInPrefill(Strict):
    """Constants of decodes in a prefill kernel, fitted to RTX PRO 6000 and RTX 4090 together."""

    row_share: float = Field(default=0.502, gt=0)
    """Time of a block with one query row over that of a full one."""
    fixed_keys: float = Field(default=168.0, ge=0)
    """Prologue and epilogue of a block with one query row, in equivalent keys."""
    longest_block: float = Field(default=0.384, ge=0)
    """Time of one block alone over a full block's time at one multiprocessor's share of the peak."""
    memory_efficiency: float = Field(default=1.06, gt=0)
    """Share of the bandwidth; above 1 where L2 serves reads shared by heads."""
    blocks_in_flight: float = Field(default=0.788, gt=0)
    """Concurrent blocks per multiprocessor."""
    overlap_exponent: float = Field(default=1.095, gt=0)
    """Overlap of chunk and decodes: 1 adds their times, a large value takes the longer."""


class MixedDecodes(NamedTuple):
    """Equal-shape arrays: the decodes of a mixed step; kv_bytes is bytes per cached element."""

    sequences: Array
    seq_kv: Array
    heads: Array
    kv_heads: Array
    head_dim: Array
    kv_bytes: Array | float


def mixed_seconds(
    form: DecodesInPrefill, kernel: FlashAttention, chip: Chip, prefill_s: Array, decodes: MixedDecodes
) -> Array:
    """Return kernel times in seconds of a mixed step.

    Args:
        form: constants of the decodes.
        kernel: constants of the prefill kernel that runs them.
        chip: data-sheet figures at the dtype.
        prefill_s: time of the step's chunk alone.
        decodes: the decodes of the step.
    """
    sequences, seq_kv, heads, kv_heads, head_dim, kv_bytes = decodes
    peak = chip.peak * kernel.at_head_dim(head_dim) * kernel.causal_share
    per_block = 4.0 * head_dim * kernel.rows * (seq_kv + form.fixed_keys) / peak
    work = form.row_share * sequences * heads * per_block
    longest = form.longest_block * per_block * chip.multiprocessors

    pass_bytes = 2.0 * sequences * seq_kv * head_dim * kv_bytes
    side_by_side = form.blocks_in_flight * chip.multiprocessors / np.maximum(sequences, 1.0)
    group = heads / kv_heads
    outside = 1.0 / (1.0 + (chip.l2_bytes / np.maximum(pass_bytes, 1.0)) ** 4)
    reads = 1.0 + (group / np.clip(side_by_side, 1.0, group) - 1.0) * outside
    memory = pass_bytes * kv_heads * reads / (chip.bandwidth * form.memory_efficiency)

    decode_s = power_norm(power_norm(work, longest, 4.0), np.maximum(memory, 1e-12), 2.0)
    chunk = np.maximum(prefill_s - kernel.overhead_s, 1e-9)
    together = kernel.overhead_s + power_norm(chunk, decode_s, form.overlap_exponent)
    return np.where(sequences > 0.0, together, prefill_s)
