"""Replicas by spare KV and queues, as llm-d's Workload Variant Autoscaler counts them."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from core.quantities import Few
from simulator.serving.scalers.base import PoolLoad, Scaler


class WorkloadVariantAutoscaler(Scaler):
    """WVA's saturation analyzer for one variant of a model.

    A replica is saturated from ``kv`` of its KV blocks or ``queue`` waiting sequences on. The pool gets one
    more replica where those that are not saturated have less than ``spare_kv`` or ``spare_queue`` left in the
    mean, unless one is starting, and loses one where the others would keep both with its load. WVA reads
    peaks of the last minute; a look here is an instant.
    """

    name: ClassVar[str] = "wva"
    rule: ClassVar[str] = "one more below spare KV or queue, one less where the others keep both"
    source: ClassVar[str] = "llm-d-workload-variant-autoscaler 0.5, docs/saturation-analyzer.md"
    reads_replicas: ClassVar[bool] = True
    interval: float = Field(60.0, ge=0.1, le=1e6, description="seconds between two looks at the pool")
    kv: float = Field(0.8, gt=0, le=1, description="share of KV blocks that saturates a replica")
    queue: int = Field(5, ge=1, le=10**6, description="waiting sequences that saturate a replica")
    spare_kv: float = Field(0.1, ge=0, le=1, description="mean share of KV blocks below kv that is kept")
    spare_queue: float = Field(3.0, ge=0, le=1e6, description="mean sequences below queue that are kept")
    most: Few = Field(64, description="most replicas")

    def target_replicas(self, now: float, replicas: int, running: int, waiting: int, slots: int) -> int:
        """See `Scaler.target_replicas`: without metrics of replicas, as many as there are."""
        return replicas

    def by_load(self, pool: PoolLoad) -> int:
        """See `Scaler.by_load`."""
        free = [load for load in pool.replicas if load.kv < self.kv and load.waiting < self.queue]
        if not self._spares(sum(load.kv for load in free), sum(load.waiting for load in free), len(free)):
            return pool.size if pool.starting else min(pool.size + 1, max(self.most, pool.size))
        others = len(free) - 1
        safe = self._spares(sum(load.kv for load in free), sum(load.waiting for load in free), others)
        return pool.size - 1 if safe and not pool.starting else pool.size

    def _spares(self, kv: float, waiting: float, replicas: int) -> bool:
        """Whether replicas with a load between them keep the spare capacity."""
        if replicas < 1:
            return False
        return (
            self.kv - kv / replicas >= self.spare_kv and self.queue - waiting / replicas >= self.spare_queue
        )
