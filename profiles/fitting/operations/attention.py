"""Fused attention over whole sequences, forward (with the cache's append, in serving) and backward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.attention import AttentionCalls, FlashAttention, flash_attention_seconds
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.model import BACKWARD_FLOPS
from profiles.fitting.operations.operation import Array, FittedOperation, floats, joined
from profiles.fitting.residuals import Covariance, Smoother, axis_covariance
from profiles.fitting.robust import Number
from profiles.points import Points

COLUMNS = ("batch", "seq_q", "seq_kv", "n_heads", "n_kv_heads", "head_dim")
HEAD_DIMS = (32, 64, 80, 96, 128, 192, 256, 512)


def _call(points: Points) -> AttentionCalls:
    return AttentionCalls(*floats(points, *COLUMNS))


def _forward(form: FlashAttention, chip: Chip, points: Points) -> Array:
    return flash_attention_seconds(form, chip, _call(points), causal=True, appends=True)


def _backward(form: FlashAttention, chip: Chip, points: Points) -> Array:
    return flash_attention_seconds(form, chip, _call(points), True, False, BACKWARD_FLOPS)


def _key(points: Points) -> NDArray[np.str_]:
    return joined(points["n_heads"], points["head_dim"])


def _coordinates(_: FlashAttention, points: Points) -> tuple[Array, ...]:
    batch, seq_q, _length, heads, kv_heads, head_dim = floats(points, *COLUMNS)
    return batch, seq_q, kv_heads, heads / kv_heads, head_dim


NUMBERS = (
    Number("overhead_s", 1e-6, 4e-5, 0),
    *(Number(f"efficiency.{head_dim}", 0.03, 2.0, 0) for head_dim in HEAD_DIMS),
    Number("fixed_keys", 1.0, 2000.0, 0),
    Number("longest_block", 0.05, 4.0, 1),
    Number("tail", 0.01, 5.0, 1),
    Number("memory_efficiency", 0.05, 5.0),
    Number("overlap_exponent", 0.4, 10.0),
    Number("l2_reuse", 0.001, 2.0),
    Number("throttling", 0.0003, 0.2),
    Number("append_efficiency", 0.05, 5.0),
    Number("append_extra", 0.1, 5000.0),
)
GENERIC = FlashAttention(
    overhead_s=1e-5,
    efficiency={64: 0.5, 128: 0.65},
    fixed_keys=100.0,
    memory_efficiency=0.8,
    overlap_exponent=1.5,
    longest_block=0.9,
    tail=1.3,
    throttling=0.02,
    l2_reuse=0.05,
    packs_query_heads="never",
)
SMOOTHER = Smoother(
    (
        axis_covariance(0.5, 1.5, 1.5, 1.5, 3.0, 0.7),
        # The number of thread blocks follows sequences, heads and query rows together.
        Covariance(
            0.5,
            ((1, 0, 1, 1, 0), (1, 1, 1, 1, 0), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0), (0, 0, 0, 0, 1)),
            (1.5, 1.0, 3.0, 4.0, 1.0),
        ),
    ),
    noise=0.03,
)

FORWARD = FittedOperation(
    "attention",
    "attention_prefill",
    GENERIC,
    NUMBERS,
    _forward,
    _key,
    least=3,
    starts=(
        {},
        {"fixed_keys": 100.0, "memory_efficiency": 0.6, "overlap_exponent": 3.0, "longest_block": 1.0},
    ),
    coordinates=_coordinates,
    smoothers=(SMOOTHER, replace(SMOOTHER, noise=0.3)),
    variants=tuple({"packs_query_heads": when} for when in ("never", "one-query", "always")),
)
BACKWARD = replace(
    FORWARD,
    name="attention_backward",
    seconds=_backward,
    coordinates=None,
    smoothers=(),
    variants=({"packs_query_heads": "never"},),
)
