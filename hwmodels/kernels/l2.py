"""Speed of memory while a kernel finds its operands in L2."""

import numpy as np
from numpy.typing import NDArray

L2_SHARPNESS = 4.0
"""Steepness at which bytes no longer fit into L2."""

Array = NDArray[np.floating]


def faster_in_l2(touched_bytes: Array, gain: float, fitting: float) -> Array:
    """Return the speed of memory over that outside of L2, of which `fitting` bytes serve the kernel.

    Args:
        touched_bytes: bytes that kernels touch.
        gain: further speed of memory while all of them lie in L2.
        fitting: bytes of L2 that serve the kernel.
    """
    outside = L2_SHARPNESS * np.log(touched_bytes / fitting)
    return 1.0 + gain / (1.0 + np.exp(np.clip(outside, -60.0, 60.0)))
