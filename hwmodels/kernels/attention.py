"""Time of fused (flash) attention over whole sequences: training and prefill.

A thread block takes some query rows and iterates over the keys that they attend to. Time is the work of
all blocks at the head dimension's efficiency, at least the longest block, plus the tail of the last wave;
memory traffic overlaps it.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, field_validator

from core.loading import Strict
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import power_norm, throttled

Array = NDArray[np.floating]

KEY_STEP = 64.0
"""Keys per iteration of a block."""


class FlashAttention(Strict):
    """Constants of the forward form; fitted together, so not physical individually."""

    overhead_s: float = Field(ge=0)
    efficiency: dict[int, float]
    """Share of the matrix peak reached, by head dimension."""
    fixed_keys: float = Field(ge=0)
    """Prologue and epilogue of a block, in equivalent keys."""
    causal_share: float = Field(default=1.0, gt=0)
    """Efficiency under a causal mask over that without one."""
    causal_keys: float = Field(default=0.0, ge=0)
    """Cost of a causal mask in a block, in equivalent keys."""
    memory_efficiency: float = Field(gt=0)
    overlap_exponent: float = Field(gt=0)
    longest_block: float = Field(ge=0)
    """Time of the longest block running alone, over its time at one multiprocessor's share of the peak."""
    tail: float = Field(ge=0)
    """Idle time in the last wave, in halves of a wave."""
    throttling: float = Field(ge=0)
    l2_reuse: float = Field(default=0.0, ge=0)
    """Bytes of operands that stay in L2 between kernels, in units of L2."""
    rows: float = Field(default=128.0, gt=0)
    """Query rows of a thread block."""
    packs_query_heads: Literal["never", "one-query", "always"]
    """Condition under which the query heads of one key-value head share the rows of a block."""
    append_efficiency: float | None = Field(default=None, gt=0)
    """Share of the memory bandwidth of the append to a cache; None without an append."""
    append_extra: float = Field(default=0.0, ge=0)
    """Cost of writing a token to the cache, in equivalent elements."""

    @field_validator("efficiency")
    @classmethod
    def _some_positive(cls, value: dict[int, float]) -> dict[int, float]:
        if not value or min(value.values()) <= 0 or min(value) <= 0:
            raise ValueError("needs at least one head dimension, all figures positive")
        return value

    def at_head_dim(self, head_dim: Array) -> Array:
        """Return the efficiency, interpolated over the log of the head dimension (clamped outside)."""
        head_dims = sorted(self.efficiency)
        return np.interp(np.log(head_dim), np.log(head_dims), [self.efficiency[d] for d in head_dims])


class AttentionCalls(NamedTuple):
    """Arrays of attention calls, broadcast; head_dim is the mean of the query and the value dimension."""

    batch: Array
    seq_q: Array
    seq_kv: Array
    heads: Array
    kv_heads: Array
    head_dim: Array


def flash_attention_seconds(
    form: FlashAttention,
    chip: Chip,
    call: AttentionCalls,
    causal: bool,
    appends: bool,
    products: float = 1.0,
    share: ArrayLike = 1.0,
) -> Array:
    """Return kernel times in seconds.

    Args:
        form: fitted constants.
        chip: data-sheet figures at the dtype.
        call: shapes; with `causal`, the last query attends to all keys.
        causal: whether a query attends only to keys up to its own position.
        appends: whether the call also writes new keys and values into a cache, as serving does.
        products: FLOPs over those of the forward pass.
        share: speed over the form's at full clocks. A slower kernel draws less power: clocks fall only until
            it takes as long as the form's.
    """
    batch, seq_q, seq_kv, heads, kv_heads, head_dim = call
    efficiency = form.at_head_dim(head_dim) * (form.causal_share if causal else 1.0)
    fixed_keys = form.fixed_keys + (form.causal_keys if causal else 0.0)
    blocks = _blocks(form, call)
    keys = _keys_per_block(form.rows, seq_q, seq_kv, causal)

    peak = chip.peak * efficiency
    per_key = 4.0 * products * head_dim * form.rows
    work = per_key * blocks * (keys + fixed_keys) / peak
    longest = form.longest_block * per_key * (seq_kv + fixed_keys) * chip.multiprocessors / peak
    waves = np.maximum(blocks / chip.multiprocessors, 1.0)
    core = power_norm(work, longest, 4.0) + np.where(waves > 1.0, 0.5 * form.tail * work / waves, 0.0)

    moved_bytes = (
        4.0 * batch * seq_q * heads * head_dim
        + 2.0 * batch * seq_kv * kv_heads * head_dim * chip.element_bytes
    )
    moved_bytes = moved_bytes / (1.0 + (form.l2_reuse * chip.l2_bytes / moved_bytes) ** 2)
    memory = moved_bytes / (chip.bandwidth * form.memory_efficiency)
    busy = np.maximum(per_key * blocks * keys / chip.peak, chip.busy_before_s)
    slowdown = np.maximum(throttled(busy, form.throttling, chip.clock_share) * np.asarray(share), 1.0)
    seconds = form.overhead_s + power_norm(core, memory, form.overlap_exponent) * slowdown
    seconds = seconds / np.asarray(share)
    if appends and form.append_efficiency is not None:
        written = 8.0 * batch * seq_q * (kv_heads * head_dim + form.append_extra)
        seconds = seconds + written / (chip.bandwidth * form.append_efficiency)
    return seconds


def _blocks(form: FlashAttention, call: AttentionCalls) -> Array:
    """Return the number of thread blocks."""
    blocks = call.batch * call.heads * np.ceil(call.seq_q / form.rows)
    if form.packs_query_heads == "never":
        return blocks
    group = call.heads / call.kv_heads
    packed = np.minimum(blocks, call.batch * call.kv_heads * np.ceil(group * call.seq_q / form.rows))
    return packed if form.packs_query_heads == "always" else np.where(call.seq_q == 1.0, packed, blocks)


def _keys_per_block(rows: float, seq_q: Array, seq_kv: Array, causal: bool) -> Array:
    """Return the mean number of keys per block."""
    if not causal:
        return KEY_STEP * np.ceil(seq_kv / KEY_STEP)
    per_head = np.ceil(seq_q / rows)
    diagonal = rows * (per_head - 1.0) / 2.0 + KEY_STEP * np.ceil(seq_q / KEY_STEP) / per_head
    return np.maximum(seq_kv - seq_q, 0.0) + diagonal
