"""Whether the host launches ahead of the device."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedLaunchesAhead(Partial):
    """As a plan states it."""

    launches_ahead: bool | None = Field(
        default=None,
        description="whether the host launches kernels while the device still runs others; with "
        "CUDA_LAUNCH_BLOCKING=1 it waits for each kernel",
    )


@chosen
class ChosenLaunchesAhead:
    """As a release does it."""

    launches_ahead: bool = True


LEVER = Lever("launches_ahead")
