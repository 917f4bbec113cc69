"""Where scales of tensors in fp8 come from."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal["", "delayed", "current"]


class StatedScaling(Partial):
    """As a plan states it."""

    scaling: Literal["delayed", "current"] | None = Field(
        default=None,
        description="scales of tensors in fp8: from the largest values of earlier steps (delayed), or from "
        "each tensor's own (current), which reads it once more and loses less",
    )


@chosen
class ChosenScaling:
    """As a release does it."""

    scaling: Value = ""


LEVER = Lever("scaling")
