"""Routing to a replica that holds the request's adapter."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.routers.base import Router, Target
from simulator.serving.workload.request import Request


class AdapterAware(Router):
    """The least loaded replica that holds the request's adapter, unless another has far fewer sequences."""

    name: ClassVar[str] = "adapter-aware"
    rule: ClassVar[str] = "a replica that holds the adapter; the least loaded where loads differ"
    source: ClassVar[str] = "S-LoRA (arXiv 2311.03285); Punica (arXiv 2310.18547)"
    load_difference: int = Field(8, ge=0, le=2**24, description="sequences that a replica with it has more")

    def pick(self, request: Request, targets: Many[Target], turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        loads = [target.load for target in targets]
        least = min(loads)
        holders = [(load, index) for index, load in enumerate(loads) if targets[index].holds(request)]
        if holders and min(holders)[0] <= least + self.load_difference:
            return min(holders)[1]
        return loads.index(least)
