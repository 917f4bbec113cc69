"""Routing by priority: urgent requests to the first replicas, the others to the rest."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class ByPriority(Router):
    """The least loaded of the replicas of the request's class."""

    name: ClassVar[str] = "by-priority"
    rule: ClassVar[str] = (
        "priority 0 to the first replicas, others to the last ones; the least loaded of them"
    )
    source: ClassVar[str] = "servers of high and low priority in Patel et al., arXiv:2308.12908"
    low_share: float = Field(0.5, ge=0, le=1, description="share of the replicas that serve lower priorities")

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        high = min(max(round((1.0 - self.low_share) * len(targets)), 1), len(targets) - 1)
        first, end = (0, high) if request.priority == 0 else (high, len(targets))
        loads = targets.column("load")[first:end] + 3 * targets.column("queue")[first:end]
        return first + int(loads.argmin())
