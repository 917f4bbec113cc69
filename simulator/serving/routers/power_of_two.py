"""Routing to the less loaded of two random replicas."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class PowerOfTwo(Router):
    """Two replicas are drawn; the one with fewer sequences takes the request."""

    name: ClassVar[str] = "power-of-two"
    rule: ClassVar[str] = "the less loaded of two drawn replicas"
    source: ClassVar[str] = "Mitzenmacher, The power of two choices, IEEE TPDS 2001"

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        count = len(targets)
        if count == 1:
            return 0
        first = int(random.random() * count)
        other = int(random.random() * (count - 1))
        other += other >= first
        return first if targets[first].load <= targets[other].load else other
