"""Whether elementwise kernels are fused."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal["fused", "eager"]


class StatedElementwise(Partial):
    """As a plan states it."""

    elementwise: Value | None = Field(
        default=None, description="whether bias, dropout, residual, activation and rotary kernels are fused"
    )


@chosen
class ChosenElementwise:
    """As a release does it."""

    elementwise: Value = "fused"


LEVER = Lever("elementwise")
