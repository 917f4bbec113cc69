"""Data-sheet figures of a device that kernel forms read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from core.errors import InputError
from hwmodels.generation import Generation


class Specifications(Protocol):
    """The part of a device that kernel models read; `hwmodels.device.Device` has it."""

    @property
    def name(self) -> str: ...
    @property
    def generation(self) -> Generation: ...
    @property
    def memory_bandwidth(self) -> float: ...
    @property
    def multiprocessors(self) -> int: ...
    @property
    def l2_bytes(self) -> float: ...
    @property
    def vendor(self) -> str: ...
    @property
    def clock_hz(self) -> float: ...
    @property
    def clock_share(self) -> float: ...
    @property
    def calibration(self) -> str | Mapping[str, Any]: ...
    def peak(self, dtype: str) -> float: ...
    def settled(self, dtype: str) -> float: ...


class Chip(NamedTuple):
    """A device at one dtype: FLOP/s (dense), bytes/s, multiprocessors, last-level cache in bytes."""

    peak: float
    bandwidth: float
    multiprocessors: float
    l2_bytes: float
    element_bytes: float
    output_bytes: float
    busy_before_s: float = 0.0
    """Seconds that the chip has been busy when a kernel starts; clocks fall during this time."""
    clock_share: float = 1.0
    """Clock in use over the highest; ``peak`` is at the clock in use."""
    fitted_multiprocessors: float | None = None
    """Of the device that the constants are of; None: as many as here."""


# Bytes an element takes as an operand; block-scaled formats carry one scale byte per 32 or 16 elements.
ELEMENT_BYTES = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "int8": 1.0,
    "mxfp8": 1.0 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "mxfp4_w4a8": 0.5 + 1 / 32,
    "mxfp4_w4a16": 0.5 + 1 / 32,
    "int4_w4a16": 0.53,
}
COMPUTES_IN = {"fp8_block": "fp8", "mxfp4_w4a8": "fp8", "mxfp4_w4a16": "bf16", "int4_w4a16": "bf16"}
"""Formats whose matrix units are those of another: scaled by blocks, or weights narrower than activations."""


def peak_dtype(dtype: str) -> str:
    """Return the dtype whose peak bounds a GEMM dtype."""
    return COMPUTES_IN.get(dtype, dtype)


def chip(device: Specifications, dtype: str) -> Chip:
    """Return the device's figures at one dtype.

    Raises:
        InputError: a dtype that kernels do not know, or that the device does not have.
    """
    element = element_bytes(dtype, device.name)
    return Chip(
        peak=device.peak(peak_dtype(dtype)),
        bandwidth=device.memory_bandwidth,
        multiprocessors=float(device.multiprocessors),
        l2_bytes=float(device.l2_bytes),
        element_bytes=element,
        output_bytes=4.0 if element == 4.0 else 2.0,
        clock_share=device.clock_share,
    )


def element_bytes(dtype: str, where: str = "") -> float:
    """Return the bytes that an element takes as an operand or in a cache, scales included.

    Raises:
        InputError: a dtype that kernels do not know.
    """
    if dtype not in ELEMENT_BYTES:
        raise InputError(f"unknown dtype {dtype!r}; allowed: {', '.join(ELEMENT_BYTES)}", where)
    return ELEMENT_BYTES[dtype]
