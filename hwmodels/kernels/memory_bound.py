"""Time of kernels that are limited by memory: norms, activations, residual adds, optimizer steps."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.loading import Strict
from hwmodels.kernels.chip import Chip

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


class MemoryBoundForm(Strict):
    """Start-up time, share of the bandwidth, and the gain while all bytes fit in L2."""

    overhead_s: float = Field(ge=0)
    memory_efficiency: float = Field(gt=0)
    l2_gain: float = Field(default=0.0, ge=0)
    l2_fraction: float = Field(default=1.0, gt=0)


def memory_bound_seconds(form: MemoryBoundForm, chip: Chip, bytes_moved: Array) -> Array:
    """Return seconds of kernels that read and write `bytes_moved` bytes in total."""
    return seconds_of_forms([form], chip, bytes_moved[np.newaxis])[0]


def seconds_of_forms(forms: Sequence[MemoryBoundForm], chip: Chip, bytes_moved: Array) -> Array:
    """Return seconds of kernels of several forms, shape (forms, ...), as `bytes_moved`."""
    table = [(f.overhead_s, f.memory_efficiency, f.l2_gain, f.l2_fraction) for f in forms]
    overhead, efficiency, gain, fraction = np.array(table).T.reshape(4, -1, *(1,) * (bytes_moved.ndim - 1))
    # Squares of squares: a general power takes five times as long.
    inside = 1.0 / (1.0 + np.square(np.square(bytes_moved / (fraction * chip.l2_bytes))))
    return overhead + bytes_moved / (chip.bandwidth * efficiency * (1.0 + gain * inside))
