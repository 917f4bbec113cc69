"""Attention of one new token a sequence over its cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.attention_decode import DecodeCalls, SplitKv, as_run, split_kv_seconds
from hwmodels.kernels.chip import Chip
from profiles.fitting.operations.operation import Array, FittedOperation, floats, joined
from profiles.fitting.residuals import Covariance, Smoother, axis_covariance
from profiles.fitting.robust import Number
from profiles.points import Points

COLUMNS = ("batch", "seq_kv", "n_heads", "n_kv_heads", "head_dim")


def _seconds(form: SplitKv, chip: Chip, points: Points) -> Array:
    # Benchmarks call one shape over and over: a cache that fits stays in L2.
    fp8_cache = np.char.endswith(points["dtype"].astype(str), "_kvfp8")
    kv_bytes = np.where(fp8_cache, 1.0, chip.element_bytes)
    return split_kv_seconds(
        form, chip, DecodeCalls(*floats(points, *COLUMNS), kv_bytes=kv_bytes), cache_in_l2=True
    )


def _key(points: Points) -> NDArray[np.str_]:
    return joined(points["n_heads"], points["head_dim"])


def _coordinates(form: SplitKv, points: Points) -> tuple[Array, ...]:
    call = as_run(form, DecodeCalls(*floats(points, *COLUMNS), kv_bytes=0.0))
    batch, seq_kv, heads, kv_heads, head_dim, _ = call
    return batch, seq_kv, kv_heads, heads / kv_heads, head_dim


NUMBERS = (
    Number("overhead_s", 5e-7, 3e-5, 0),
    Number("memory_efficiency", 0.3, 1.5, 0),
    Number("block_overhead_s", 2e-8, 2e-5, 0),
    Number("block_bandwidth", 5e9, 5e12, 0),
    Number("combine_s", 5e-8, 2e-5, 1),
    Number("math_efficiency", 0.02, 5.0, 1),
    Number("l2_gain", 0.02, 12.0),
    Number("l2_fraction", 0.05, 2.0),
    Number("l2_sharpness", 1.0, 25.0),
    Number("block_exponent", 0.5, 8.0),
    Number("head_dim_exponent", 0.01, 2.0),
    Number("overlap_exponent", 0.4, 12.0),
    Number("wave_quantisation", 0.02, 1.0),
    Number("grouped_overhead_s", 1e-8, 1e-5),
)
GENERIC = SplitKv(
    overhead_s=8e-6,
    memory_efficiency=0.9,
    l2_gain=0.6,
    l2_fraction=0.7,
    l2_sharpness=15.0,
    block_bandwidth=1e11,
    combine_s=3e-6,
    math_efficiency=1.0,
    block_overhead_s=3.5e-6,
    block_exponent=1.5,
    head_dim_exponent=0.5,
    overlap_exponent=1.5,
    wave_quantisation=0.95,
    grouped_overhead_s=2e-7,
    shortest_split_multi_head=64.0,
    shortest_split_grouped=64.0,
)
NEVER = 1e9
_BY_SHAPE = Smoother(
    (
        axis_covariance(0.7, 1.5, 1.5, 1.5, 4.0, 0.7),
        # The number of thread blocks follows sequences and heads together, and with the length the bytes.
        Covariance(
            0.3,
            ((1, 0, 1, 0, 0), (0, 1, 0, 0, 0), (1, 1, 1, 0, 1), (0, 0, 0, 1, 0), (0, 0, 0, 0, 1)),
            (1.0, 2.0, 4.0, 4.0, 1.0),
        ),
    ),
    noise=0.02,
)
# Some libraries look at nothing but blocks and bytes, whichever of sequences and heads make them many.
_BY_BLOCKS = Smoother(
    (
        Covariance(
            0.7,
            ((1, 0, 1, 0, 0), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0), (0, 0, 0, 0, 1), (0, 0, 1, 0, 0)),
            (1.5, 1.5, 2.0, 0.7, 30.0),
        ),
        Covariance(
            0.3,
            (
                (1, 0, 1, 0, 0),
                (1, 1, 1, 0, 1),
                (0, 1, 0, 0, 0),
                (0, 0, 0, 1, 0),
                (0, 0, 0, 0, 1),
                (0, 0, 1, 0, 0),
            ),
            (3.0, 0.7, 3.0, 3.0, 1.0, 30.0),
        ),
    ),
    noise=0.02,
)

DECODE = FittedOperation(
    "attention_decode",
    "attention_decode",
    GENERIC,
    NUMBERS,
    _seconds,
    _key,
    least=3,
    starts=({}, {"block_exponent": 2.5, "overlap_exponent": 1.8, "block_bandwidth": 2.4e10}),
    coordinates=_coordinates,
    smoothers=(_BY_SHAPE, _BY_BLOCKS, replace(_BY_SHAPE, noise=0.3)),
    variants=tuple(
        {"shortest_split_multi_head": multi_head, "shortest_split_grouped": grouped, "plain_above": plain}
        for multi_head, grouped, plain in (
            (64.0, 64.0, None),
            (NEVER, 64.0, None),
            (4096.0, 64.0, None),
            (NEVER, 1024.0, None),
            (64.0, 1024.0, None),
            # TensorRT-LLM's grouped kernel takes up to 32 query heads.
            (64.0, 64.0, 32.0),
            (NEVER, 64.0, 32.0),
        )
    ),
)
