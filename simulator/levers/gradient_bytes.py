"""Bytes of an accumulated gradient."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal[2, 4]


class StatedGradientBytes(Partial):
    """As a plan states it."""

    gradient_bytes: Value | None = Field(default=None, description="bytes of one accumulated gradient")


@chosen
class ChosenGradientBytes:
    """As a release does it."""

    gradient_bytes: Value = 4


LEVER = Lever("gradient_bytes")
