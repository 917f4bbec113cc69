"""Whether the choice of experts is fused kernels."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedFusedRouter(Partial):
    """As a plan states it."""

    fused_router: bool | None = Field(
        default=None, description="the choice of experts and its statistics are fused kernels"
    )


@chosen
class ChosenFusedRouter:
    """As a release does it."""

    fused_router: bool = True


LEVER = Lever("fused_router")
