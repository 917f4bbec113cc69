"""Whether experts pad to a capacity."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedFixedCapacity(Partial):
    """As a plan states it."""

    fixed_capacity: bool | None = Field(
        default=None,
        description="experts drop tokens beyond a capacity and pad to it: their numbers are known",
    )


@chosen
class ChosenFixedCapacity:
    """As a release does it."""

    fixed_capacity: bool = False


LEVER = Lever("fixed_capacity")
