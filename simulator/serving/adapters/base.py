"""Interface of adapter kernels: what different adapters in one batch cost in a step."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from numpy.typing import NDArray

from core.loading import Strict
from hwmodels.device import Device
from simulator.serving.adapters.shapes import AdapterShapes

Array = NDArray


class AdapterKernel(Strict):
    """One way to compute adapters. Its fields are its parameters (`adapters.options`).

    Attributes:
        name: name in deployments.
        rule: description for people.
        source: publication.
        mixes: sequences with different adapters share a batch; else a batch has one adapter.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]
    mixes: ClassVar[bool] = True

    def bytes(self, shapes: AdapterShapes) -> float:
        """Bytes of one adapter over the replica."""
        return shapes.bytes

    @abstractmethod
    def seconds(self, distinct: Array, shapes: AdapterShapes, tensor: int, device: Device) -> Array:
        """Seconds that a step is longer with ``distinct`` adapters in its batch.

        Args:
            distinct: mean number of adapters, at least one, shape (cases,).
            shapes: of an adapter.
            tensor: tensor-parallel ranks that share each product.
            device: of the replica.
        """

    @abstractmethod
    def token_s(self, shapes: AdapterShapes, tensor: int, device: Device) -> float:
        """Seconds that a step is longer for each of its query tokens."""


def passes_s(shapes: AdapterShapes, tensor: int, device: Device) -> float:
    """Seconds to read a token's inputs and to add to its outputs, for all products with an adapter.

    The outputs are read and written once more.
    """
    return shapes.layers * 2.0 * 1.5 * shapes.widths / tensor / device.memory_bandwidth
