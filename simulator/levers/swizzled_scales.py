"""Kernels that reorder scales of blocks."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal["none", "one", "per-expert"]


class StatedSwizzledScales(Partial):
    """As a plan states it."""

    swizzled_scales: Value | None = Field(
        default=None,
        description="kernels that bring scales of blocks into the order that products read: none, one for "
        "each operand of a call, or one for each expert's",
    )


@chosen
class ChosenSwizzledScales:
    """As a release does it."""

    swizzled_scales: Value = "none"


LEVER = Lever("swizzled_scales")
