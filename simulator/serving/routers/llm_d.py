"""Routing to the replicas that cache a prompt until they are saturated, as llm-d's endpoint picker."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from core.quantities import Duration
from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class StickyUntilSaturated(Router):
    """Among the replicas that cache enough of the prompt, the one with the fewest prompt tokens to compute.

    A filter keeps the replicas that cache at least ``affinity`` of the prompt. It keeps all replicas where
    none does, or where the prompt tokens in flight would delay the least loaded of them by ``penalty`` longer
    than the least loaded of the others. The scorer counts uncached prompt tokens in flight, those of the
    request included; they leave the count when they are computed. A draw decides between equals.

    The release learns what a replica caches from what it has sent there (``index`` sent): a prompt counts as
    cached before it is computed and after it is evicted. With ``exact`` replicas report their blocks.
    """

    name: ClassVar[str] = "llm-d"
    rule: ClassVar[str] = "fewest uncached prompt tokens in flight among replicas that cache the prompt"
    source: ClassVar[str] = (
        "llm-d-router, prefix-cache-affinity-filter (plugin.go) and token-load-scorer (token_load.go); "
        "approx- and precise-prefix-cache-producer; weights of llm-d's guide optimized-baseline"
    )
    index: Literal["sent", "exact"] = Field(
        default="sent", description="what the router takes for cached: what it has sent, or replicas' blocks"
    )
    affinity: float = Field(default=0.8, ge=0, le=1, description="share of the prompt that must be cached")
    penalty: Duration = Field(
        default=18.0, description="longest extra wait before affinity ends; 0: it never does"
    )
    prefill_rate: float = Field(
        default=15928.0,
        gt=0,
        le=1e9,
        description="prompt tokens a second of a replica, which turn tokens in flight into the wait "
        "(the default is Qwen3-32B on two H100)",
    )

    @property
    def records(self) -> bool:
        """See `Router.records`."""
        return self.index == "sent"

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        pending = targets.column("pending").astype(float)
        cached = (targets.sent(request) if self.records else targets.cached(request)).astype(float)
        sticky = cached >= self.affinity * request.prompt
        if sticky.any() and not sticky.all() and self.penalty:
            gap = pending[sticky].min() - pending[~sticky].min()
            if gap > self.penalty * self.prefill_rate:
                sticky[:] = False
        tokens = pending + request.prompt - cached
        if sticky.any():
            tokens[~sticky] = np.inf
        best = np.flatnonzero(tokens == tokens.min())
        return int(best[int(random.random() * len(best))])
