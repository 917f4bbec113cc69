"""How torch kernels rotate."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal["", "halves"]


class Stated(Partial):
    """As a plan states it."""

    rotary: Value | None = Field(
        default=None,
        description="rotary embedding as torch kernels over both halves of each head; empty: as "
        "``elementwise`` says",
    )


@chosen
class Chosen:
    """As a release does it."""

    rotary: Value = ""


LEVER = Lever("rotary")
