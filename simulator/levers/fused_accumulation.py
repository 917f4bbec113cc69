"""Whether products add up weight gradients."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedFusedAccumulation(Partial):
    """As a plan states it."""

    fused_accumulation: bool | None = Field(
        default=None, description="weight gradients accumulate inside the matrix product"
    )


@chosen
class ChosenFusedAccumulation:
    """As a release does it."""

    fused_accumulation: bool = True


LEVER = Lever("fused_accumulation")
