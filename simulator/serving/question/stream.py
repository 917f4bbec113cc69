"""Weights that do not stay in device memory, as a pool states them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from core.loading import Strict


class WeightStream(Strict):
    """Layers that are read in every step, from the host or from SSDs."""

    from_: Literal["host", "nvme"] = Field("host", alias="from", description="where layers are: host or nvme")
    resident: float = Field(0.0, ge=0, le=1, description="share of the layers that stay in device memory")
    window: int = Field(2, ge=1, le=1024, description="layers in device memory beside those")
    prefetch: bool = Field(True, description="read the next layers while one computes")
    cpu_bytes_s: float = Field(
        default=0.0,
        ge=0,
        le=1e15,
        description="rate at which a replica's host processors read weights of the host and multiply, B/s",
    )
    cpu_flops: float = Field(
        default=2e12, gt=0, le=1e18, description="16-bit rate of those processors, FLOP/s (assumed)"
    )

    def resident_share(self, layers: int) -> float:
        """Share of a model's weights in device memory."""
        return min(self.resident + (1.0 - self.resident) * min(self.window / layers, 1.0), 1.0)

    @property
    def read(self) -> float:
        """Share of the weights that each step reads."""
        return 1.0 - self.resident
