"""How documents of unequal length become the rows and micro batches of a training step: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from simulator.packing.balance import Balanced
from simulator.packing.base import Array, Packing, Rows
from simulator.packing.concatenated import Concatenated
from simulator.packing.pack import Packed
from simulator.packing.pad import Padded
from simulator.packing.unpadded import Unpadded

PACKINGS: Mapping[str, Packing] = MappingProxyType(
    {
        "none": Unpadded(),
        "pad": Padded(),
        "pack": Packed(),
        "concat": Concatenated(),
        "balance": Balanced(),
    }
)
"""Packings by the word of ``workload.packing``."""

__all__ = ["PACKINGS", "Array", "Packing", "Rows"]
