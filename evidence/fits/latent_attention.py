"""Latent attention of DeepSeek-V3's widths: decode (absorbed), and prefill over expanded vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.attention import AttentionCalls, FlashAttention, flash_attention_seconds
from hwmodels.kernels.attention_latent import LatentCache, LatentDecode, latent_decode_seconds
from hwmodels.kernels.chip import Chip, element_bytes
from profiles.fitting.operations.attention import FORWARD
from profiles.fitting.operations.operation import Array, FittedOperation, floats, joined
from profiles.fitting.robust import Number
from profiles.points import Points

LATENT_DIM, ROPE_DIM = 512.0, 64.0
PREFILL_DIM = 160
"""Mean of the 192 columns of a key and the 128 of a value."""


def _seconds(form: LatentDecode, chip: Chip, points: Points) -> Array:
    batch, seq_kv, heads = floats(points, "batch", "seq_kv", "heads")
    same = np.ones_like(batch)
    dtype, _, cache = str(points["dtype"][0]).partition("_kv")
    kv_bytes = element_bytes(cache or dtype)
    call = LatentCache(batch, same, seq_kv, heads, LATENT_DIM * same, ROPE_DIM * same, kv_bytes)
    return latent_decode_seconds(form, chip, call)


def _key(points: Points) -> NDArray[np.str_]:
    return joined(points["heads"], points["batch"])


NUMBERS = (
    Number("overhead_s", 1e-6, 1e-4, 0),
    Number("memory_efficiency", 0.05, 1.0, 0),
    Number("compute_efficiency", 0.01, 1.0, 0),
    Number("overlap_exponent", 0.8, 12.0),
    Number("query_efficiency", 0.02, 2.0),
    Number("block_bandwidth", 1e9, 1e12),
    Number("block_overhead_s", 1e-8, 2e-5),
    Number("combine_s", 1e-8, 4e-5),
    Number("wave_quantisation", 0.01, 1.0),
    Number("rereads", 0.001, 1.0),
)
GENERIC = LatentDecode(
    overhead_s=1.1e-5,
    query_efficiency=0.3,
    block_bandwidth=2.5e10,
    block_overhead_s=1e-6,
    combine_s=2e-6,
    wave_quantisation=0.3,
    rereads=0.01,
)

LATENT = FittedOperation(
    "latent",
    "latent_decode",
    GENERIC,
    NUMBERS,
    _seconds,
    _key,
    starts=({}, {"block_bandwidth": 2e11, "compute_efficiency": 0.8, "overlap_exponent": 1.3}),
    variants=tuple(
        {"rows": rows, "parts": parts}
        for rows, parts in (
            (1.0, None),
            (16.0, None),
            (32.0, None),
            (64.0, None),
            (128.0, None),
            # TensorRT-LLM's kernel of Ampere, Ada and RTX Blackwell; Triton's in SGLang.
            (128.0, 1.0),
            (64.0, 1.0),
            (16.0, 8.0),
            (16.0, 16.0),
            (1.0, 8.0),
        )
    ),
)
"""Points have columns batch, seq_kv, heads and dtype."""


def _prefill(form: FlashAttention, chip: Chip, points: Points) -> Array:
    batch, queries, keys, heads = floats(points, "batch", "sequence", "seq_kv", "heads")
    call = AttentionCalls(batch, queries, keys, heads, heads, np.full_like(batch, PREFILL_DIM))
    return flash_attention_seconds(form, chip, call, causal=True, appends=False)


LATENT_PREFILL = replace(
    FORWARD,
    name="latent_prefill",
    table="latent_prefill",
    generic=FORWARD.generic.model_copy(update={"efficiency": {PREFILL_DIM: 0.65}}),
    numbers=(
        Number(f"efficiency.{PREFILL_DIM}", 0.03, 2.0, 0),
        *(number for number in FORWARD.numbers if not number.path.startswith(("efficiency.", "append_"))),
    ),
    seconds=_prefill,
    key=_key,
    coordinates=None,
    smoothers=(),
    variants=({"packs_query_heads": "never"},),
)
"""Points have columns batch, sequence, seq_kv and heads."""
