"""Routing to the replica with the fewest sequences."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class LeastLoaded(Router):
    """The replica with the least ``waiting_weight`` x waiting + running; the first of equals."""

    name: ClassVar[str] = "least-loaded"
    rule: ClassVar[str] = "fewest sequences, waiting ones weighted"
    source: ClassVar[str] = "vLLM data-parallel load balancer (4 x waiting + running)"
    waiting_weight: float = Field(4.0, ge=0, le=1e6, description="weight of a waiting sequence")

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        more = self.waiting_weight - 1.0
        if targets.few:
            loads = [member.load + more * member.queue for member in targets.members]
            return loads.index(min(loads))
        return int((targets.column("load") + more * targets.column("queue")).argmin())
