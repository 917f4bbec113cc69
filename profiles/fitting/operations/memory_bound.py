"""Kernels limited by memory: one fit a kind, over all operations of that kind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.chip import Chip
from hwmodels.kernels.memory_bound import MemoryBoundForm, memory_bound_seconds
from profiles.fitting.operations.operation import Array, FittedOperation, floats, joined
from profiles.fitting.robust import Number
from profiles.points import Points

# What point files call an operation, and the kind that stands for it.
KINDS = {
    "add": "elementwise",
    "rms_norm": "norm",
    "layer_norm": "norm",
    "input_layernorm": "norm",
    "post_attention_layernorm": "norm",
    "softmax": "softmax",
    "rope": "rope",
    "attn_rope": "rope",
    "gelu": "activation",
    "silu_mul": "activation",
    "mlp_act": "activation",
    "emb": "embedding",
    "embedding": "embedding",
    "cross_entropy": "cross_entropy",
    "adam": "optimizer",
    "copy": "copy",
    "quantize_fp8": "elementwise",
}


def kind_of(points: Points) -> NDArray[np.str_]:
    """Return the kind of each point, empty for those that are none (launches, copies over a link)."""
    names, inverse = np.unique(points["op"].astype(str), return_inverse=True)
    return np.array([KINDS.get(name, "") for name in names], dtype=str)[inverse]


def _seconds(form: MemoryBoundForm, chip: Chip, points: Points) -> Array:
    tokens, bytes_per_token = floats(points, "tokens", "bytes_per_token")
    return memory_bound_seconds(form, chip, tokens * bytes_per_token)


def _key(points: Points) -> NDArray[np.str_]:
    return joined(points["op"], points["dims"])


NUMBERS = (
    Number("overhead_s", 1e-7, 1e-4, 0),
    Number("memory_efficiency", 0.02, 1.5, 0),
    Number("l2_gain", 0.001, 30.0, 0),
    Number("l2_fraction", 0.05, 16.0, 0),
)
GENERIC = MemoryBoundForm(overhead_s=2e-6, memory_efficiency=0.8, l2_gain=0.3, l2_fraction=0.5)

MEMORY_BOUND = FittedOperation("memory_bound", "elementwise", GENERIC, NUMBERS, _seconds, _key, least=2)
