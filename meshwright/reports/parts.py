"""Groups of parts of a step for charts, with fixed colours."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "matrix products": ("#2c6fbb", ("gemm", "grouped_gemm")),
        "attention": ("#62a5e3", ("attention", "softmax")),
        "kernels": ("#2c6fbb", ("compute",)),
        "other kernels": ("#b0d0ef", ()),
        "output layer": ("#8f7fc9", ("output_layer",)),
        "recomputation": ("#e9a23b", ("recompute",)),
        "optimizer": ("#6a51a3", ("optimizer",)),
        "tensor": ("#c8374a", ("tensor",)),
        "context": ("#e0707f", ("context",)),
        "expert": ("#8e1c3a", ("expert",)),
        "pipeline sends": ("#f2a0a9", ("pipeline",)),
        "data parallel": ("#a8653f", ("gradients", "parameters", "data")),
        "output layer sums": ("#d98c5f", ("output",)),
        "host copies": ("#7b8794", ("to host", "from host")),
        "launches and slow devices": ("#9fb3c8", ("launch", "variation")),
        "bubble": ("#dde3ea", ("bubble",)),
    }
)
"""Colour and parts of every group; ungrouped parts are other kernels."""

GROUP_OF: Mapping[str, str] = MappingProxyType(
    {part: group for group, (_, parts) in GROUPS.items() for part in parts}
)


def grouped(parts: Mapping[str, float]) -> dict[str, float]:
    """Seconds of the groups present, in the order of ``GROUPS``."""
    sums = dict.fromkeys(GROUPS, 0.0)
    for name, seconds in parts.items():
        sums[GROUP_OF.get(name, "other kernels")] += seconds
    return {name: seconds for name, seconds in sums.items() if seconds}


def colour(group: str) -> str:
    """The colour of a group."""
    return GROUPS[group][0]


OTHERS = ("#2c6fbb", "#e9a23b", "#2aa198", "#c8374a", "#6a51a3", "#7b8794", "#62a5e3", "#a8653f")
"""Colours of parts that are in no group."""


def shade(name: str, place: int) -> str:
    """The colour of a group, or of another part by its place."""
    return GROUPS[name][0] if name in GROUPS else OTHERS[place % len(OTHERS)]
