"""Routing by the time at which a replica would end a request."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class Soonest(Router):
    """The replica with the least ``alpha`` x computing + (1 - ``alpha``) x waiting; the first of equals.

    Seconds are those of the replica's own devices with its present batch, so slow devices get fewer requests.
    Output lengths count as known. HexGen-Text2SQL divides by the wait instead of adding it; both prefer an
    empty queue, and this one has a unit.
    """

    name: ClassVar[str] = "soonest"
    rule: ClassVar[str] = "least weighted sum of waiting and computing on the replica's devices, s"
    source: ClassVar[str] = "Peng et al., HexGen-Text2SQL, arXiv 2505.05286 (workload-balanced dispatching)"
    alpha: float = Field(default=0.5, ge=0, le=1, description="weight of computing against waiting")
    reads_kv: ClassVar[bool] = True

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        waiting, computing = targets.seconds(request)
        return int(((1.0 - self.alpha) * waiting + self.alpha * computing).argmin())
