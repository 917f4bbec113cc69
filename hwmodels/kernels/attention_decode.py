"""Time of attention for one new token per sequence against its cached keys and values.

A thread block takes one (sequence, key-value head), or a part of its length (split-KV; a second pass then
combines the parts). The cache is read from memory once, overlapping the computation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.loading import Strict
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import power_norm, rounds

Array = NDArray[np.floating]

SPLITS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


EMULATED_CACHE = 4.0
"""Time with an 8-bit cache, unpacked in software, over time with a 16-bit cache. An estimate: whole
runs of vLLM on A100 reach 0.84 (few sequences) to 0.2 (many) of their throughput (LLM-Inference-Bench)."""


class SplitKv(Strict):
    """Constants of the decode form; see `split_kv_seconds`."""

    overhead_s: float = Field(ge=0)
    memory_efficiency: float = Field(gt=0)
    l2_gain: float = Field(ge=0)
    l2_fraction: float = Field(gt=0)
    l2_sharpness: float = Field(gt=0)
    block_bandwidth: float = Field(gt=0)
    combine_s: float = Field(ge=0)
    math_efficiency: float = Field(gt=0)
    block_overhead_s: float = Field(ge=0)
    block_exponent: float = Field(default=1.0, gt=0)
    """Overlap of a block's start-up with its keys: 1 adds their times, a large value takes the longer."""
    head_dim_exponent: float
    overlap_exponent: float = Field(gt=0)
    wave_quantisation: float = Field(ge=0, le=1)
    grouped_overhead_s: float = Field(ge=0)
    """Copies that group the query heads of one key-value head, where both are many."""
    shortest_split_multi_head: float = Field(ge=0)
    shortest_split_grouped: float = Field(ge=0)
    plain_above: float | None = Field(default=None, gt=0)
    """Query heads per key-value head above which the library runs its multi-head kernel."""


class DecodeCalls(NamedTuple):
    """Arrays of decode calls, broadcast; kv_bytes is bytes per cached element."""

    batch: Array
    seq_kv: Array
    heads: Array
    kv_heads: Array
    head_dim: Array
    kv_bytes: Array | float


def as_run(form: SplitKv, call: DecodeCalls) -> DecodeCalls:
    """Return the calls with the key-value heads that the kernel is run with."""
    if form.plain_above is None:
        return call
    plain = call.heads > form.plain_above * call.kv_heads
    return call._replace(kv_heads=np.where(plain, call.heads, call.kv_heads))


def split_kv_seconds(form: SplitKv, chip: Chip, call: DecodeCalls, cache_in_l2: bool) -> Array:
    """Return kernel times in seconds.

    Args:
        form: fitted constants.
        chip: data-sheet figures at the dtype of the arithmetic.
        call: shapes.
        cache_in_l2: keys and values that fit stay in L2, as in benchmark loops; a model's other layers evict
            them, so whole models pass False.
    """
    cached_heads = call.kv_heads
    batch, length, heads, kv_heads, head_dim, kv_bytes = as_run(form, call)
    group = heads / kv_heads
    rows = 16.0 * np.ceil(group / 16.0)
    from_cache = 2.0 * head_dim * kv_bytes / form.block_bandwidth
    math = 4.0 * rows * head_dim / (chip.peak / chip.multiprocessors * form.math_efficiency)
    per_key = (from_cache**3 + math**3) ** (1.0 / 3.0)
    per_block = form.block_overhead_s * (head_dim / 128.0) ** form.head_dim_exponent
    shortest = np.where(group > 1.0, form.shortest_split_grouped, form.shortest_split_multi_head)

    core: Array = np.full((), np.inf)
    for split in SPLITS:
        waves = batch * kv_heads * (split / chip.multiprocessors)
        block_s = power_norm(per_key * np.ceil(length / split), per_block, form.block_exponent)
        seconds = rounds(waves, form.wave_quantisation) * block_s
        if split > 1.0:
            seconds = seconds + form.combine_s * (1.0 + 0.1 * np.log2(split))
            seconds = np.where(length >= shortest, seconds, np.inf)
        core = np.minimum(core, seconds)

    cache = 2.0 * batch * cached_heads * length * head_dim * kv_bytes
    memory = cache / (chip.bandwidth * form.memory_efficiency)
    if cache_in_l2:
        # exp keeps the steep switch finite for every size
        outside = form.l2_sharpness * np.log(cache / (form.l2_fraction * chip.l2_bytes))
        memory = memory / (1.0 + form.l2_gain / (1.0 + np.exp(np.clip(outside, -60.0, 60.0))))
    grouped = np.where((group > 1.0) & (batch > 1.0) & (kv_heads > 1.0), form.grouped_overhead_s, 0.0)
    return form.overhead_s + grouped + power_norm(core, memory, form.overlap_exponent)
