"""Wire formats: bits of an element, its share of a scale, and the traffic of encoding and decoding it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from core.loading import Strict

WireName = Literal["fp32", "bf16", "fp8", "int8", "int4"]


Elements = TypeVar("Elements", float, np.ndarray)


class WireFormat(NamedTuple):
    """One number format on the wire.

    Attributes:
        bits: of one element.
        scale_bytes: of the scale that a block of elements shares.
        block: elements of a block.
        product: product format that a device must have to convert to it; empty: any device converts.
        source: of block and scale.
    """

    bits: int
    scale_bytes: int
    block: int
    product: str
    source: str

    @property
    def bytes(self) -> float:
        """Bytes of one element with its share of the scale."""
        return self.bits / 8 + self.scale_bytes / self.block

    @property
    def coded(self) -> bool:
        """Whether kernels encode and decode it."""
        return self.scale_bytes > 0


ZEROPP = "DeepSpeed, csrc/quantization: one 32-bit scale a group of up to 2,048 elements"
WIRE_FORMATS: Mapping[str, WireFormat] = MappingProxyType(
    {
        "fp32": WireFormat(32, 0, 1, "", "IEEE 754"),
        "bf16": WireFormat(16, 0, 1, "", "two bytes, fp16 alike"),
        "fp8": WireFormat(8, 4, 2048, "fp8", "as int8, in the format of products"),
        "int8": WireFormat(8, 4, 2048, "", ZEROPP),
        "int4": WireFormat(4, 4, 2048, "", ZEROPP),
    }
)
"""Formats by name."""

WORKING_BYTES = 2.0
"""Bytes of an element on the device, before it is encoded and after it is decoded."""


def codec_bytes(form: WireFormat, encoded: Elements, decoded: Elements) -> Elements:
    """Memory traffic of encoding and decoding so many elements: read one format, write the other."""
    return (encoded + decoded) * ((WORKING_BYTES + form.bytes) * form.coded)


class Wire(Strict):
    """Formats in which parameters, gradients and boundary tensors move, where not the framework's."""

    gather: WireName | None = Field(None, description="parameters gathered for a forward pass")
    reduce: WireName | None = Field(None, description="gradients")
    reduce_hops: Literal[1, 2] = Field(
        1,
        description="hops of a reduction: 1 over all ranks, 2 inside a node and then between nodes; a coded "
        "format takes an all-to-all for each, a plain one a reduce-scatter",
    )
    send: WireName | None = Field(
        None, description="boundary tensors between pipeline stages, and their gradients"
    )

    @property
    def of_state(self) -> bool:
        """Whether gathers or reductions have a format of their own."""
        return bool(self.gather or self.reduce or self.reduce_hops > 1)
