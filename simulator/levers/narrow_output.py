"""Whether the output layer runs in the format of linear layers."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedNarrowOutput(Partial):
    """As a plan states it."""

    narrow_output: bool | None = Field(
        default=None,
        description="the output layer runs in the format of the linear layers, not in 16 bits (Megatron "
        "Core: fp8_output_proj)",
    )


@chosen
class ChosenNarrowOutput:
    """As a release does it."""

    narrow_output: bool = False


LEVER = Lever("narrow_output")
