"""Routing to the replica that caches the prompt's KV."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class PrefixAware(Router):
    """The replica that caches most of the prompt, unless loads differ too much; then the least loaded.

    SGLang's cache-aware router switches to the shortest queue where the largest load exceeds the least by
    more than an absolute and a relative threshold, and where the match is short.
    """

    name: ClassVar[str] = "prefix-aware"
    rule: ClassVar[str] = "most of the prompt cached; the least loaded where loads differ or nothing matches"
    source: ClassVar[str] = (
        "cache_aware policy of sglang-router 0.3.2 and vllm-router 0.1.17 (router_args.py: cache_threshold, "
        "balance_abs_threshold, balance_rel_threshold)"
    )
    match_share: float = Field(0.3, ge=0, le=1, description="share of the prompt that must be cached")
    load_difference: int = Field(
        64, ge=0, le=2**24, description="sequences between the most and the least loaded"
    )
    load_ratio: float = Field(1.5, ge=1, le=1e6, description="most over least load")

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        loads = targets.column("load")
        lowest, highest = loads.min(), loads.max()
        balanced = highest - lowest <= self.load_difference or highest <= self.load_ratio * lowest
        if balanced and request.prefix:
            cached = targets.cached(request)
            best = cached.max()
            if best >= self.match_share * request.prompt:
                holders = np.flatnonzero(cached == best)
                return int(holders[loads[holders].argmin()])
        return int(loads.argmin())
