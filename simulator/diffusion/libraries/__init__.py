"""Libraries that run diffusion models, one YAML file each: kernels and host times."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from core.loading import Catalogue, Strict
from core.quantities import NotNegative, Positive
from core.sources import Sourced
from hwmodels.device import Device, devices

DEFAULT, REFERENCE = "default", "h100-sxm"
"""Key of the devices that no other key names, and the device on which its times were measured."""


class LibraryTimes(Strict):
    """Time of a library's kernels on a device over that of the calibrated kernels."""

    attention: Positive = Field(description="over the calibrated kernels of the library's version")
    memory: Positive = Field(description="elementwise kernels, over the bytes of their operands")
    convolution: Positive = Field(description="over the product that the convolution is")
    depthwise: Positive = Field(description="over the bytes of the depthwise convolution's operands")


class DiffusionLibrary(Sourced):
    """Constants of a library; none belongs to a model."""

    UNSOURCED: ClassVar[frozenset[str]] = frozenset({"name", "title"})

    name: str
    title: str
    compiled: bool = Field(description="whether a compiler joins elementwise kernels")
    attention: Literal["flash", "flash-3", "flash-2"] = Field(description="kernels of attention")
    channels_last: bool = Field(
        description="whether images lie channels last: a convolution reads each input once; else its time is "
        "over a product that reads its window, and has the copies between layouts"
    )
    launch_s: NotNegative = Field(description="host time of a kernel, s")
    sequence_s: NotNegative = Field(description="host time of an attention among sequence-parallel ranks, s")
    ring_s: NotNegative = Field(description="host time of each further block of a ring, s")
    request_s: NotNegative = Field(description="host time of a request outside of its calls, s")
    adapter_s: NotNegative = Field(
        description="host time in which an adapter is put beside one weight, before the first step, s"
    )
    times: dict[str, LibraryTimes] = Field(description="by device; `default` for all others")
    latency_error: Positive | None = Field(
        None, description="relative error of latencies that nine of ten rows that nothing was fitted to keep"
    )

    @field_validator("times")
    @classmethod
    def _has_default(cls, value: dict[str, LibraryTimes]) -> dict[str, LibraryTimes]:
        if DEFAULT not in value:
            raise ValueError(f"key {DEFAULT!r} is missing")
        return value

    def on(self, device: Device) -> LibraryTimes:
        """Times on a device.

        What a convolution takes beyond its product is copies between layouts of the image: on devices that
        nobody measured it is as long for their bandwidth as on the reference.
        """
        if device.name in self.times or device.name == REFERENCE:
            return self.times.get(device.name, self.times[DEFAULT])
        times, (intensity, reference) = (
            self.times[DEFAULT],
            map(_flops_a_byte, (device, devices.get(REFERENCE))),
        )
        return times.model_copy(
            update={"convolution": 1.0 + (times.convolution - 1.0) * intensity / reference}
        )


def _flops_a_byte(device: Device) -> float:
    """Products in 16 bits in the time of a byte of memory."""
    return device.peak("bf16") / device.memory_bandwidth


diffusion_libraries = Catalogue("diffusion library", Path(__file__).parent, DiffusionLibrary)
