"""Whether layers of multi-token prediction are trained."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedTrainsMtp(Partial):
    """As a plan states it."""

    trains_mtp: bool | None = Field(
        default=None, description="whether the multi-token prediction layers that a model has are trained"
    )


@chosen
class ChosenTrainsMtp:
    """As a release does it."""

    trains_mtp: bool = False


LEVER = Lever("trains_mtp")
