"""Time of kernels that are limited by memory: norms, activations, residual adds, optimizer steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodels.kernels.chip import Chip
from hwmodels.loading import Strict

Array = NDArray[np.float64]

KINDS = (
    "elementwise",
    "norm",
    "softmax",
    "rope",
    "activation",
    "embedding",
    "cross_entropy",
    "optimizer",
    "copy",
)

VARIANTS = {
    "layer_norm": "norm",
    "rms_norm": "norm",
    "gelu": "activation",
    "silu_mul": "activation",
    "quantize_fp8": "elementwise",
}
"""Operations that calibrations may distinguish within their kind: layer and RMS norm differ on CPUs, casts
and other elementwise kernels on Blackwell."""


class MemoryBound(Strict):
    """Start-up time, share of the bandwidth, and the gain while all bytes fit in L2."""

    overhead_s: float = Field(ge=0)
    memory_efficiency: float = Field(gt=0)
    l2_gain: float = Field(default=0.0, ge=0)
    l2_fraction: float = Field(default=1.0, gt=0)


def memory_bound_seconds(form: MemoryBound, chip: Chip, bytes_moved: Array) -> Array:
    """Return seconds of kernels that read and write `bytes_moved` bytes in total."""
    inside = 1.0 / (1.0 + (bytes_moved / (form.l2_fraction * chip.l2_bytes)) ** 4)
    return form.overhead_s + bytes_moved / (
        chip.bandwidth * form.memory_efficiency * (1.0 + form.l2_gain * inside)
    )
