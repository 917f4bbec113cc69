"""One accelerator as software sees it, and the catalogue of shipped devices.

An MI250X package holds two devices (GCDs), because software sees two. Every figure of the
catalogue names its source in ``sources``.
"""

import math
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from core.errors import InputError
from core.loading import Catalogue, Versioned, looks_like_path
from core.quantities import Bandwidth, Count, NotNegative, Positive
from hwmodels.clocks import LEAST_SHARE
from hwmodels.generation import Generation, generations

if TYPE_CHECKING:
    from hwmodels.kernels import KernelModel

DType = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "mxfp4", "int8"]
BESIDE = r"\b(?:nvidia|amd|intel|instinct|tesla|geforce|hbm\w*|nvl\d+|oam)\b"
MEMORY_SIZE = r"\b(\d+) ?gi?b\b"
"""Words beside the name of a device."""
SAME_SIZE = 0.1
"""Share by which a printed size of memory, in GB or GiB, may differ from a device's."""
LIBRARY_BYTES = 1.5e9
"""Memory of a driver's context and libraries, where no framework or engine states its own (assumed)."""


class Device(Versioned):
    """One accelerator: peak rates, memory, power and price."""

    name: str
    """The catalogue name, e.g. "h100-sxm"."""
    aliases: list[str] = Field(default_factory=list)
    """Other names in published tables and in use."""
    vendor: Literal["nvidia", "amd", "intel", "other"]
    generation: Generation
    """The architecture, by name, or a new one as ``{name, based_on, ...}``."""
    peak_flops: Annotated[dict[DType, Positive], Field(min_length=1)]
    """Dense peak FLOP/s of each number format that the device has."""
    settled_flops: dict[DType, Positive] = Field(default_factory=dict)
    """FLOP/s of products that last 20 ms and more: the rate under the power limit with settled clocks."""
    memory_bytes: Positive
    """Memory available to software: torch's ``total_memory``, below the datasheet's figure."""
    memory_bandwidth: Bandwidth
    """Peak device memory bandwidth, B/s."""
    multiprocessors: Count
    """Streaming multiprocessors, compute units or tensor cores."""
    l2_bytes: Positive
    """Last cache level shared by all multiprocessors and private to the device."""
    tdp_watts: Positive
    """Power limit of the whole device."""
    idle_watts: NotNegative
    """Power when a context is open and nothing runs."""
    clock_hz: NotNegative = 0.0
    """Clock of the multiprocessors at which the peaks hold; 0: not known, so it cannot be lowered."""
    clock_share: Annotated[float, Field(ge=LEAST_SHARE, le=1.0)] = 1.0
    """Clock in use over the clock of the datasheet's peaks; ``peak_flops`` is at the clock in use."""
    price_per_hour_usd: NotNegative
    """On-demand list price of one device with its share of the node."""
    calibration: str | dict[str, Any]
    """Name of the kernel calibration, or the calibration itself."""
    sources: dict[str, str]
    """Where the figures come from, by field."""

    @field_validator("generation", mode="before")
    @classmethod
    def _named_generation(cls, value: object, info: ValidationInfo) -> object:
        """Find a generation by name, path or mapping; a path is relative to the device's file."""
        return generations.find(value, info)

    @field_validator("calibration")
    @classmethod
    def _beside_the_file(cls, value: str | dict[str, Any], info: ValidationInfo) -> str | dict[str, Any]:
        """Resolve files named in a device file relative to that file."""
        folder = (info.context or {}).get("folder")
        if folder is None:
            return value
        if isinstance(value, str):
            return str(Path(folder) / value) if looks_like_path(value) else value
        named = value.get("residuals")
        return (
            value | {"residuals": str((Path(folder) / named).resolve())} if isinstance(named, str) else value
        )

    def peak(self, dtype: str) -> float:
        """Return the dense peak of a number format, FLOP/s.

        Raises:
            InputError: the device does not have this format; the message names those it has.
        """
        for name, flops in self.peak_flops.items():
            if name == dtype:
                return flops
        raise InputError(f"{self.name} has no {dtype!r}; it has {', '.join(self.peak_flops)}")

    def settled(self, dtype: str) -> float:
        """Return the FLOP/s of matrix products at settled clocks; infinite where not measured."""
        return next((flops for name, flops in self.settled_flops.items() if name == dtype), math.inf)

    def at_clock(self, hertz: float, where: str = "") -> "Device":
        """Return the same device with its multiprocessors at a lower clock; memory keeps its bandwidth.

        Args:
            hertz: clock; at or above the clock of the peaks, the device is returned as it is.
            where: of the clock in the input, for errors.

        Raises:
            InputError: the device's clock is not known, or the lower one is out of range.
        """
        if not self.clock_hz:
            raise InputError(f"the clock of {self.name} is not known (`clock_hz` of a device)", where)
        least = LEAST_SHARE * self.clock_hz
        if hertz < least:
            raise InputError(
                f"must be at least {least / 1e6:,.0f} MHz on {self.name}, found {hertz / 1e6:,.0f} MHz", where
            )
        share = hertz / self.clock_hz
        if share >= 1.0:
            return self
        peaks = {name: share * flops for name, flops in self.peak_flops.items()}
        changed = {"peak_flops": peaks, "clock_hz": hertz, "clock_share": share * self.clock_share}
        return self.model_validate({name: getattr(self, name) for name in type(self).model_fields} | changed)

    @property
    def borrows(self) -> bool:
        """Whether the kernel times of a device that is not shipped are those of another device."""
        named = isinstance(self.calibration, str) and not looks_like_path(self.calibration)
        return named and devices.resolve(self.name) is None

    @cached_property
    def kernels(self) -> "KernelModel":
        """The times of this device's kernels."""
        from hwmodels.kernels import KernelModel

        return KernelModel(self)


class Devices(Catalogue[Device]):
    """The devices, by name, by alias, or as their drivers print them ("NVIDIA H100 80GB HBM3")."""

    def resolve(self, name: str) -> str | None:
        """Return the catalogue name that a name means, also beside its vendor, rack or memory, or none.

        A size that is not part of the name must be the device's.
        """
        bare = re.sub(BESIDE, " ", name.replace("_", " "), flags=re.IGNORECASE)
        resolved = super().resolve(name) or super().resolve(_joined(bare))
        size = re.search(MEMORY_SIZE, bare, re.IGNORECASE)
        if resolved is not None or size is None:
            return resolved
        resolved = super().resolve(_joined(bare.replace(size[0], " ")))
        if resolved is None or abs(int(size[1]) * 2**30 / self.get(resolved).memory_bytes - 1) > SAME_SIZE:
            return None
        return resolved


def _joined(text: str) -> str:
    return " ".join(text.split()).strip("- ")


devices = Devices("device", Path(__file__).parent / "devices", Device)
