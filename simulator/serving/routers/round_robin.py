"""Routing in turn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class RoundRobin(Router):
    """Replicas in turn, regardless of their load."""

    name: ClassVar[str] = "round-robin"
    rule: ClassVar[str] = "replicas in turn"
    source: ClassVar[str] = "nginx, Kubernetes services"
    looks: ClassVar[bool] = False

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        return turn % len(targets)
