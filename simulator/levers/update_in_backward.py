"""Whether parameters are updated during the backward pass."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedUpdateInBackward(Partial):
    """As a plan states it."""

    update_in_backward: bool | None = Field(
        default=None,
        description="each parameter is updated as soon as its gradient is there, which is then freed "
        "(torchtune: optimizer_in_bwd); with one micro batch a step",
    )


@chosen
class ChosenUpdateInBackward:
    """As a release does it."""

    update_in_backward: bool = False


LEVER = Lever("update_in_backward")
