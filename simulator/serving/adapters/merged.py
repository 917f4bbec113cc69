"""Adapters merged into the weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hwmodels.device import Device
from simulator.serving.adapters.base import AdapterKernel, Array
from simulator.serving.adapters.shapes import AdapterShapes


class Merged(AdapterKernel):
    """The weights are those of one fine-tuned model: a batch has one adapter, and costs as the base."""

    name: ClassVar[str] = "merged"
    rule: ClassVar[str] = "one adapter at a time, at no cost in a step"
    source: ClassVar[str] = "vLLM 0.2 with one model at a time, baseline of Punica (arXiv 2310.18547)"
    mixes: ClassVar[bool] = False

    def seconds(self, distinct: Array, shapes: AdapterShapes, tensor: int, device: Device) -> Array:
        """See `AdapterKernel.seconds`."""
        return np.zeros(np.shape(distinct))

    def token_s(self, shapes: AdapterShapes, tensor: int, device: Device) -> float:
        """See `AdapterKernel.token_s`."""
        return 0.0
