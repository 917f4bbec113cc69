"""Whether weights are kept in the format of the products alone."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedNarrowParameters(Partial):
    """As a plan states it."""

    narrow_parameters: bool | None = Field(
        default=None,
        description="weights of 8-bit and 4-bit products are kept in that format alone, without 16-bit "
        "weights beside them (Megatron Core: fp8_param_gather, fp4_param_gather)",
    )


@chosen
class ChosenNarrowParameters:
    """As a release does it."""

    narrow_parameters: bool = False


LEVER = Lever("narrow_parameters")
