"""The library behind the flex dispatcher."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedDispatcherLibrary(Partial):
    """As a plan states it."""

    dispatcher_library: str | None = Field(
        default=None,
        description="library behind the flex dispatcher, whose rate the calibration of links or fabric may "
        "state: hybridep, deepep, uccl, nvshmem",
    )


@chosen
class ChosenDispatcherLibrary:
    """As a release does it."""

    dispatcher_library: str = "hybridep"


LEVER = Lever("dispatcher_library")
