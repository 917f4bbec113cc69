"""How torch kernels rotate."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal["", "halves"]


class StatedRotary(Partial):
    """As a plan states it."""

    rotary: Value | None = Field(
        default=None,
        description="rotary embedding as torch kernels over both halves of each head; empty: as "
        "``elementwise`` says",
    )


@chosen
class ChosenRotary:
    """As a release does it."""

    rotary: Value = ""


LEVER = Lever("rotary")
