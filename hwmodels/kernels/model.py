"""`KernelModel`: seconds of every kernel of one device, as array functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from hwmodels.kernels import memory_bound
from hwmodels.kernels.attention_kernels import BACKWARD_FLOPS, AttentionKernels
from hwmodels.kernels.base import Array
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.products import Layout, Products

__all__ = ["BACKWARD_FLOPS", "KernelModel", "Layout"]


class KernelModel(Products, AttentionKernels):
    """Kernel times of one device. All methods take arrays that broadcast, and return seconds.

    Args:
        device: data-sheet figures (peak per dtype, bandwidth, multiprocessors, L2).
        calibration: fitted constants; by default the device's.
        busy_before_s: seconds that the device has been busy when a kernel starts; see `sustained`.
        library: library of the kernels, where the calibration has several; see `using`.
        corrects: whether measured points beside the calibration correct the forms.
    """

    @property
    def launch_seconds(self) -> float:
        """Host time to launch one kernel in eager mode."""
        return self.calibration.launch_s

    def memory_bound(self, bytes_moved: ArrayLike, kind: str = "elementwise") -> Array:
        """Return the time of a kernel that reads and writes `bytes_moved` bytes in total.

        Args:
            bytes_moved: bytes read and written.
            kind: of `memory_bound.KINDS` or `VARIANTS`.

        Raises:
            UnknownNameError: no such kind.
        """
        return self.memory_bound_kinds(np.asarray(bytes_moved)[np.newaxis], [kind])[0]

    def memory_bound_kinds(self, bytes_moved: ArrayLike, kinds: Sequence[str]) -> Array:
        """Return the times of kernels of several kinds, shape (kinds, ...), as `memory_bound` does of one."""
        device = self.device
        figures = Chip(0.0, device.memory_bandwidth, device.multiprocessors, device.l2_bytes, 2.0, 2.0)
        forms = [self._memory_bound(kind).form for kind in kinds]
        return memory_bound.seconds_of_forms(forms, figures, np.asarray(bytes_moved, dtype=np.float64))

    def cast_wait(self, casts: ArrayLike) -> Array:
        """Return the seconds that torch's casts, element by element, add to the time of their bytes.

        Args:
            casts: elements; 0 on devices whose rate nobody measured, those of other vendors than NVIDIA.
        """
        device, form = self.device, self._memory_bound("elementwise").form
        figures = Chip(0.0, device.memory_bandwidth, device.multiprocessors, device.l2_bytes, 2.0, 2.0)
        clock = device.clock_hz if device.vendor == "nvidia" else 0.0
        return memory_bound.cast_wait_seconds(form, figures, clock, np.asarray(casts, dtype=np.float64))

    def host_copy(self, bytes_moved: ArrayLike) -> Array:
        """Return the time of a copy between device and host memory, in either direction."""
        link = self.calibration.host_copy
        return link.overhead_s + np.asarray(bytes_moved, dtype=np.float64) / link.bandwidth
