"""Ranks that join or leave a replica while it serves, as a deployment states them."""

from __future__ import annotations

from pydantic import Field

from core.loading import Strict
from core.quantities import Duration, Few


class Resize(Strict):
    """One change of the data-parallel ranks of a replica, over which its experts are spread."""

    time: Duration = Field(description="seconds from the start")
    replica: int = Field(
        default=0, ge=0, le=2**16, description="number of the replica, from 0 over all pools"
    )
    data: Few = Field(description="data-parallel ranks from then on")
    live: bool = Field(
        default=True,
        description="ranks start beside serving and experts move; false: the replica stops and starts anew",
    )
    pause: Duration = Field(
        default=2.0, description="seconds in which groups are formed anew and graphs captured (assumed)"
    )
