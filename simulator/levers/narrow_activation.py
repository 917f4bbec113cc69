"""Whether a gated activation keeps its inputs in 8 bits."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedNarrowActivation(Partial):
    """As a plan states it."""

    narrow_activation: bool | None = Field(
        default=None,
        description="a gated activation keeps its inputs for the backward pass in 8 bits, cast there and "
        "back by kernels of their own (Megatron Core: activation_func_fp8_input_store)",
    )


@chosen
class ChosenNarrowActivation:
    """As a release does it."""

    narrow_activation: bool = False


LEVER = Lever("narrow_activation")
