"""Number formats of the optimizer's state."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal["mixed", "moments-16", "bf16", "8-bit", "paged-8-bit"]


class StatedStates(Partial):
    """As a plan states it."""

    states: Value | None = Field(
        default=None,
        description="formats of the state: mixed has parameters or a copy of them, and Adam's moments, in 32 "
        "bits; moments-16 the same with moments of 16 bits (Megatron Core's precision-aware optimizer with "
        "exp_avg_dtype bf16); bf16 has parameters, gradients and moments in 16 bits only; 8-bit the same "
        "with moments of 8 bits (Dettmers et al. 2021); paged-8-bit the same with moments that the driver "
        "pages to the host where the device is full (Dettmers et al. 2023); moving pages takes no time here",
    )


@chosen
class ChosenStates:
    """As a release does it."""

    states: Value = "mixed"


LEVER = Lever("states")
