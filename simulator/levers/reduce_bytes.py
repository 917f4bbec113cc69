"""Bytes of a gradient on the wire."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal[2, 4]


class StatedReduceBytes(Partial):
    """As a plan states it."""

    reduce_bytes: Value | None = Field(default=None, description="bytes of one gradient on the wire")


@chosen
class ChosenReduceBytes:
    """As a release does it."""

    reduce_bytes: Value = 4


LEVER = Lever("reduce_bytes")
