"""Segmented gather matrix-vector products."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from hwmodels.device import Device
from simulator.serving.adapters.base import AdapterKernel, Array, passes_s
from simulator.serving.adapters.shapes import AdapterShapes

MEASURED_BYTES = 2.0 * 16 * (4096 + 4096)
"""Of an adapter's matrices of the measured product: rank 16, hidden size 4096."""
MEASURED_BANDWIDTH = 2.039e12
"""Memory bandwidth of the measuring device (A100 80 GB), B/s."""


class Sgmv(AdapterKernel):
    """Punica's kernels: a launch for each product, then each further adapter reads its matrices.

    The first adapter is launches and latency; a further one is a part of the same launch and its bytes.
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
        waiting = max(self.further_s - MEASURED_BYTES / MEASURED_BANDWIDTH, 0.0)
        read = shapes.bytes / shapes.layers / tensor / device.memory_bandwidth
        further = shapes.products * waiting + read
        return shapes.layers * (shapes.products * self.first_s + further * (distinct - 1.0))

    def token_s(self, shapes: AdapterShapes, tensor: int, device: Device) -> float:
        """See `AdapterKernel.token_s`."""
        return passes_s(shapes, tensor, device)
