"""Segmented gather matrix-vector products."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from hwmodels.device import Device
from simulator.serving.adapters.base import AdapterKernel, Array, passes_s
from simulator.serving.adapters.shapes import AdapterShapes

MEASURED_WIDTHS, MEASURED_RANK = 8192.0, 16
"""Features in and out, and rank, of the measured product."""
MEASURED_BANDWIDTH = 2.039e12
"""Memory bandwidth of the measuring device (A100 80 GB), B/s."""


class Sgmv(AdapterKernel):
    """Punica's kernels: a launch for each product, then each further adapter reads its matrices.

    The first adapter is launches and latency. The cost of a further one grows with the bytes of its matrices.
    """

    name: ClassVar[str] = "sgmv"
    rule: ClassVar[str] = "first_s a product, and further_s for each further adapter in the batch"
    source: ClassVar[str] = (
        "Chen et al., Punica (arXiv 2310.18547): 37 to 116 us for 1 to 64 adapters, rank 16"
    )
    first_s: float = Field(default=37e-6, ge=0, le=1, description="seconds of one product with one adapter")
    further_s: float = Field(
        default=(116e-6 - 37e-6) / 63,
        ge=0,
        le=1,
        description="seconds of each further adapter of rank 16",
    )

    def seconds(self, distinct: Array, shapes: AdapterShapes, tensor: int, device: Device) -> Array:
        """See `AdapterKernel.seconds`."""
        size = shapes.widths / tensor / MEASURED_WIDTHS * shapes.rank / MEASURED_RANK
        further = self.further_s * size * MEASURED_BANDWIDTH / device.memory_bandwidth
        return shapes.layers * (shapes.products * self.first_s + further * (distinct - 1.0))

    def token_s(self, shapes: AdapterShapes, tensor: int, device: Device) -> float:
        """See `AdapterKernel.token_s`."""
        return passes_s(shapes, tensor, device)
