"""Base of `KernelModel`: the device, the fitted constants, their corrections and errors."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.errors import InputError, UnknownNameError
from hwmodels.kernels import gemm, memory_bound
from hwmodels.kernels.calibration import Calibration, calibrations
from hwmodels.kernels.chip import Chip, Specifications, chip, peak_dtype
from hwmodels.kernels.residual import ResidualGrid, grids_of

Array = NDArray[np.floating]

# A dtype without a calibration uses the constants of the next dtype in this list.
STANDS_FOR = {
    "fp16": ("bf16",),
    "bf16": ("fp16",),
    "bf16_kvfp8": ("bf16",),
    "tf32": ("bf16",),
    "fp32": ("bf16",),
    "int8": ("fp8", "bf16"),
    "fp8": ("bf16",),
    "fp8_block": ("fp8", "bf16"),
    "mxfp8": ("fp8", "bf16"),
    "nvfp4": ("mxfp4", "fp8", "bf16"),
    "mxfp4": ("nvfp4", "fp8", "bf16"),
    "mxfp4_w4a8": ("mxfp4", "nvfp4", "fp8"),
}
# Formats that run on the same units at the same width.
SAME_WIDTH = {"fp16": ("fp16", "bf16"), "bf16": ("bf16", "fp16")}
MEMORY_BOUND_KINDS = (*memory_bound.KINDS, *memory_bound.VARIANTS)
OPERATIONS = ("gemm", "grouped_gemm", "attention", "attention_backward", "attention_decode")


class Kernels:
    """A device, its calibration and the library whose kernels run; `KernelModel` has the times."""

    def __init__(
        self,
        device: Specifications,
        calibration: Calibration | None = None,
        busy_before_s: float = 0.0,
        library: str = "",
        corrects: bool = True,
    ) -> None:
        self.device, self.busy_before_s = device, busy_before_s
        self.library, self.corrects = library, corrects
        self.calibration = calibration or calibrations.get(
            device.calibration, where=f"device {device.name}: calibration"
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.device.name}, {self.calibration.name}: {self.calibration.status})"
        )

    def sustained(self) -> Self:
        """The same device under steady load, with clocks settled by its power limit.

        A benchmark's short kernels run at higher clocks than a training step of seconds. The loss is measured
        by the calibration on kernels of 20 ms and more.
        """
        return type(self)(self.device, self.calibration, gemm.THROTTLE_END_S, self.library, self.corrects)

    def using(self, library: str) -> Self:
        """The same device with another library's kernels ("vllm", "flash-attention-2"), where calibrated.

        Kernels that the library's calibration lacks keep the default constants; an unknown name changes
        nothing.
        """
        return type(self)(self.device, self.calibration, self.busy_before_s, library, self.corrects)

    def uncorrected(self) -> Self:
        """The forms without the correction by measured points."""
        return type(self)(self.device, self.calibration, self.busy_before_s, self.library, corrects=False)

    def error(self, op: str, dtype: str = "bf16") -> tuple[float, float]:
        """Return (median, 90th percentile) of the relative error on unseen shapes.

        Args:
            op: gemm, grouped_gemm, attention, attention_backward, attention_decode or a memory-bound kind.
            dtype: of the operands; ignored by memory-bound kinds.

        Raises:
            UnknownNameError: no such operation.
        """
        if op in MEMORY_BOUND_KINDS:
            entry = self._memory_bound(op)
        elif op in OPERATIONS:
            entry = self._entry(op, dtype)[1]
        else:
            raise UnknownNameError("operation", op, (*OPERATIONS, *MEMORY_BOUND_KINDS))
        band = entry.band if self.corrects else entry.error
        return band.median, band.p90

    def _chip(self, dtype: str) -> Chip:
        return chip(self.device, dtype)._replace(
            busy_before_s=self.busy_before_s, fitted_multiprocessors=self.calibration.multiprocessors
        )

    def _entry(self, operation: str, dtype: str) -> tuple[str, Any]:
        """Return an operation's constants and the name of their grid: this library's, else the default's.

        A format's own constants on the device precede those of another format in the library.
        """
        library = self.calibration.libraries.get(self.library)
        tables = [
            (prefix, getattr(source, operation, {}))
            for prefix, source in ((f"{self.library}/", library), ("", self.calibration))
        ]
        same, others = SAME_WIDTH.get(dtype, (dtype,)), STANDS_FOR.get(dtype, ())
        for names in (same, others):
            for prefix, table in tables:
                for name in names:
                    if name in table:
                        return f"{prefix}{operation}/{name}", table[name]
        raise InputError(
            f"the calibration {self.calibration.name!r} has no constants for {operation} in {dtype}"
        )

    def _own_entry(self, operation: str, name: str) -> Any:
        """Return the constants of one format or rule: this library's, else the default's, or None."""
        library = self.calibration.libraries.get(self.library)
        table = {**getattr(self.calibration, operation), **(getattr(library, operation) if library else {})}
        return table.get(name)

    def _correction(self, operation: str, dtype: str, *coordinates: ArrayLike) -> Array | float:
        grid = self._grids.get(self._entry(operation, dtype)[0]) if self.corrects else None
        return 1.0 if grid is None else grid.factor(*coordinates)

    def _has(self, dtype: str) -> bool:
        try:
            return self.device.peak(dtype) > 0.0
        except InputError:
            return False

    def _peak_of(self, dtype: str, otherwise: float) -> float:
        """Return the peak of a dtype that stands for another, or `otherwise` where the device lacks it."""
        for name in (peak_dtype(dtype), *STANDS_FOR.get(dtype, ())):
            try:
                return self.device.peak(name)
            except InputError:
                continue
        return otherwise

    def _memory_bound(self, kind: str) -> Any:
        if kind not in MEMORY_BOUND_KINDS:
            raise UnknownNameError("memory-bound kernel", kind, MEMORY_BOUND_KINDS)
        library = self.calibration.libraries.get(self.library)
        tables = [library.memory_bound] if library else []
        for table in (*tables, self.calibration.memory_bound):
            for name in (kind, memory_bound.VARIANTS.get(kind)):
                if name in table:
                    return table[name]
        return self.calibration.memory_bound["elementwise"]

    @cached_property
    def _grids(self) -> dict[str, ResidualGrid]:
        path = self.calibration.residuals
        return grids_of(Path(path)) if path else {}


def as_floats(*values: ArrayLike) -> tuple[Array, ...]:
    """Return 64-bit arrays, each of its own shape."""
    return tuple(np.asarray(value, dtype=np.float64) for value in values)


def broadcast(*values: ArrayLike) -> tuple[Array, ...]:
    """Return 64-bit arrays of one shape."""
    return tuple(np.broadcast_arrays(*as_floats(*values)))
