"""Routing to a replica that holds the request's adapter."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class AdapterAware(Router):
    """The least loaded replica that holds the request's adapter, unless another has far fewer sequences."""

    name: ClassVar[str] = "adapter-aware"
    rule: ClassVar[str] = "a replica that holds the adapter; the least loaded where loads differ"
    source: ClassVar[str] = "S-LoRA (arXiv 2311.03285); Punica (arXiv 2310.18547)"
    load_difference: int = Field(8, ge=0, le=2**24, description="sequences that a replica with it has more")

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        loads = targets.column("load")
        least = int(loads.argmin())
        holders = targets.holders(request)
        if len(holders):
            nearest = int(holders[loads[holders].argmin()])
            if loads[nearest] <= loads[least] + self.load_difference:
                return nearest
        return least
