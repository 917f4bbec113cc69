"""Fine-tuned models that share most of their blocks."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from hwmodels.device import Device
from simulator.serving.adapters.base import AdapterKernel, Array
from simulator.serving.adapters.shapes import AdapterShapes


class Blocks(AdapterKernel):
    """Sequences of all models run shared blocks in one batch, and blocks of their own each in its model's.

    What stands in the place of an adapter is a model's own blocks (`rank` is not read). A step reads those of
    every further model in the batch.
    """

    name: ClassVar[str] = "blocks"
    rule: ClassVar[str] = (
        "models share blocks; a step reads the own blocks of each further model in its batch"
    )
    source: ClassVar[str] = "Hu et al., BlockLLM (arXiv 2404.18322)"
    shared: float = Field(default=0.8, ge=0, lt=1, description="share of a model's weights that all share")

    def bytes(self, shapes: AdapterShapes) -> float:
        """See `AdapterKernel.bytes`."""
        return (1.0 - self.shared) * shapes.weight_bytes

    def seconds(self, distinct: Array, shapes: AdapterShapes, tensor: int, device: Device) -> Array:
        """See `AdapterKernel.seconds`."""
        return (distinct - 1.0) * self.bytes(shapes) / tensor / device.memory_bandwidth

    def token_s(self, shapes: AdapterShapes, tensor: int, device: Device) -> float:
        """See `AdapterKernel.token_s`: products are those of the base."""
        return 0.0
