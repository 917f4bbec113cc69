"""Routing by the prefill and decode work that a request would leave on a replica, as Dynamo's KV router."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class DynamoKv(Router):
    """The replica with the least cost: prompt tokens to compute, less the cached ones, plus KV in use.

    Blocks of the request's own KV are the same on all replicas, so they are left out of the cost. At a
    ``temperature`` above zero a replica is drawn by the softmax of costs that are scaled to a range of 1.
    """

    name: ClassVar[str] = "dynamo-kv"
    rule: ClassVar[str] = "least prompt tokens to compute plus KV tokens in use"
    source: ClassVar[str] = (
        "ai-dynamo/dynamo, lib/kv-router/src/scheduling/selector/default.rs (worker_logit) and config.rs"
    )
    credit: float = Field(
        default=1.0, ge=0, le=1e3, description="weight of the cached tokens (overlap_score_credit)"
    )
    prefill: float = Field(
        default=1.0,
        ge=0,
        le=1e3,
        description="weight of prompt tokens against KV in use (prefill_load_scale)",
    )
    temperature: float = Field(
        default=0.0, ge=0, le=1e3, description="of the draw; 0: always the least cost (router_temperature)"
    )
    reads_kv: ClassVar[bool] = True

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        pending, used = targets.column("pending").astype(float), targets.column("used_tokens").astype(float)
        cached = targets.cached(request).astype(float)
        costs = self.prefill * np.maximum(pending + request.prompt - self.credit * cached, 0.0) + used
        if self.temperature and np.ptp(costs):
            weights = np.exp((costs.min() - costs) / (np.ptp(costs) * self.temperature))
            return int(np.searchsorted(np.cumsum(weights) / weights.sum(), random.random()))
        best = np.flatnonzero(costs == costs.min())
        return int(best[int(random.random() * len(best))])
