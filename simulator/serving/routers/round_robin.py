"""Routing in turn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from core.quantities import Count
from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class RoundRobin(Router):
    """Replicas in turn, regardless of their load."""

    name: ClassVar[str] = "round-robin"
    rule: ClassVar[str] = "replicas in turn"
    source: ClassVar[str] = "nginx, Kubernetes services"
    looks: ClassVar[bool] = False
    run: Count = Field(1, description="requests in a row to one replica")

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        return turn // self.run % len(targets)
