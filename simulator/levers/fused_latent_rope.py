"""Whether one kernel rotates latent heads."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedFusedLatentRope(Partial):
    """As a plan states it."""

    fused_latent_rope: bool | None = Field(
        default=None,
        description="one kernel rotates the part of latent heads that has positions and joins the parts; a "
        "chain of torch kernels in Megatron Core before 0.13",
    )


@chosen
class ChosenFusedLatentRope:
    """As a release does it."""

    fused_latent_rope: bool = True


LEVER = Lever("fused_latent_rope")
