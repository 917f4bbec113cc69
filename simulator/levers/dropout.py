"""Dropout where the workload states none."""

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen


class StatedDropout(Partial):
    """As a plan states it."""

    dropout: bool | None = Field(
        default=None, description="dropout after attention and MLP, where the workload states none"
    )


@chosen
class ChosenDropout:
    """As a release does it."""

    dropout: bool = False


LEVER = Lever("dropout")
