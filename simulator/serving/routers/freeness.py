"""Routing to the replica with the most free KV blocks per sequence."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class Freeness(Router):
    """Llumnix's dispatch: free blocks, less the demand of all waiting sequences, per sequence."""

    name: ClassVar[str] = "freeness"
    rule: ClassVar[str] = "most free KV blocks per sequence, the queue's demand taken off"
    source: ClassVar[str] = "Sun et al., Llumnix, arXiv 2406.03243"
    reads_kv: ClassVar[bool] = True

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        free = targets.column("free_blocks") / (targets.column("load") + 1)
        return int(free.argmax())
