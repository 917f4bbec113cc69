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


CASTS_A_CLOCK = 1.31
"""Elements a clock that a multiprocessor of an NVIDIA GPU passes through a torch kernel whose operands differ
in type. It looks the type of each element up as it loads and stores it, one element at a time (ATen,
Loops.cuh: LoadWithCast, StoreWithCast), so instructions limit it, not bytes. 2^26 elements from bf16 to fp32
take 362 us on A100 (pytorch, pull request 195542: 1.22 a clock), 2^29 from fp32 to fp16 2.22 ms on H100 PCIe
before such casts were vectorised (137053: 1.31), 2^30 from bf16 to fp32 2.77 ms on a GPU with 7 TB/s, read as
B200 (Paddle, pull request 76988: 1.41); their geometric mean."""
CAST_BYTES = 6.0
"""Bytes that such a kernel reads and writes for an element of 16 and one of 32 bits."""


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


def cast_wait_seconds(form: MemoryBoundForm, chip: Chip, clock_hz: float, casts: Array) -> Array:
    """Return the seconds that casts of elements one by one take beyond those of their bytes.

    Args:
        form: of the elementwise kernels that the bytes are priced with.
        chip: the device.
        clock_hz: of its multiprocessors; 0 where it is not known, and nothing is added.
        casts: elements that torch's kernels for operands of several types pass.
    """
    if not clock_hz:
        return np.zeros(np.shape(casts))
    each = 1.0 / (CASTS_A_CLOCK * chip.multiprocessors * clock_hz)
    return casts * max(each - CAST_BYTES / (chip.bandwidth * form.memory_efficiency), 0.0)
