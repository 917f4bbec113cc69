"""Replicas by KV use and prompts that wait, as Dynamo's load-based planner adjusts its workers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from core.quantities import Few
from simulator.serving.scalers.base import PoolLoad, Scaler

WAITING_KV = 0.02
"""Share of a worker's KV that the planner counts for each waiting sequence (planner.py, collect_metrics)."""


class DynamoLoadPlanner(Scaler):
    """One worker more or less at each adjustment, none while one starts.

    Prefill workers follow the number of prompts that wait for them. Decode and mixed workers follow the mean
    KV use, waiting sequences counted at 2 % each; none goes within ``grace`` adjustments of an addition. The
    planner takes means over pulls of one second and a trend of the prompt queue; a look here is an instant.
    """

    name: ClassVar[str] = "dynamo-load"
    rule: ClassVar[str] = "one more above the upper KV use or prompt queue, one less below the lower"
    source: ClassVar[str] = "ai-dynamo/dynamo 0.3, docs/architecture/load_planner.md, planner.py"
    reads_replicas: ClassVar[bool] = True
    interval: float = Field(30.0, ge=0.1, le=1e6, description="seconds between two adjustments")
    kv_up: float = Field(0.9, gt=0, le=10, description="mean KV use above which a worker is added")
    kv_down: float = Field(0.5, ge=0, le=10, description="mean KV use below which a worker goes")
    queue_up: float = Field(
        0.5, gt=0, le=1e6, description="waiting prompts above which a prefill worker is added"
    )
    queue_down: float = Field(
        0.2, ge=0, le=1e6, description="waiting prompts below which a prefill worker goes"
    )
    grace: int = Field(3, ge=0, le=1000, description="adjustments after an addition without a removal")
    least: Few = Field(1, description="fewest replicas")
    most: Few = Field(8, description="most replicas")

    def target_replicas(self, now: float, replicas: int, running: int, waiting: int, slots: int) -> int:
        """See `Scaler.target_replicas`: without metrics of replicas, as many as there are."""
        return replicas

    def by_load(self, pool: PoolLoad) -> int:
        """See `Scaler.by_load`."""
        if pool.starting or not pool.replicas:
            return pool.size
        if pool.role == "prefill":
            load, up, down = (
                float(sum(load.waiting for load in pool.replicas)),
                self.queue_up,
                self.queue_down,
            )
        else:
            uses = [load.kv + WAITING_KV * load.waiting for load in pool.replicas]
            load, up, down = float(np.mean(uses)), self.kv_up, self.kv_down
        if load > up:
            return min(pool.size + 1, max(self.most, pool.size))
        in_grace = pool.role != "prefill" and pool.since_added_s < self.grace * self.interval
        return max(pool.size - 1, min(self.least, pool.size)) if load < down and not in_grace else pool.size

    @model_validator(mode="after")
    def _check(self) -> DynamoLoadPlanner:
        for low, high in (("kv_down", "kv_up"), ("queue_down", "queue_up"), ("least", "most")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} ({getattr(self, low)}) is above {high} ({getattr(self, high)})")
        return self
