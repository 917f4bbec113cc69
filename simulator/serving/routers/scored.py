"""Routing by a weighted sum of scores, as the endpoint picker of llm-d."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class Scored(Router):
    """The replica with the highest sum of weighted scores between 0 and 1; of equals the next in turn.

    Scores: the share of the prompt that device memory (``prefix``) or any tier (``tier``) caches, the queue
    and the load between those of the longest (0) and the shortest (1), free KV, and for prompts of which no
    replica has been sent anything, the turns since a replica took such a prompt (``cold``).
    """

    name: ClassVar[str] = "scored"
    rule: ClassVar[str] = "highest weighted sum of scores: prefix, tier contents, queue, load, KV use"
    source: ClassVar[str] = (
        "llm-d endpoint picker (prefix-cache, queue, kv-cache-utilization and no-hit-lru scorers)"
    )
    prefix: float = Field(default=3.0, ge=0, le=1e6, description="weight of the cached share of the prompt")
    tier: float = Field(default=0.0, ge=0, le=1e6, description="weight of the share that tiers hold")
    queue: float = Field(default=2.0, ge=0, le=1e6, description="weight of a short queue")
    load: float = Field(default=0.0, ge=0, le=1e6, description="weight of few sequences, waiting and running")
    kv: float = Field(default=2.0, ge=0, le=1e6, description="weight of free KV blocks")
    cold: float = Field(
        default=0.0, ge=0, le=1e6, description="weight of the turns since a replica took a cold prompt"
    )
    index: Literal["exact", "sent"] = Field(
        default="exact", description="what counts as cached: replicas' blocks, or what the router has sent"
    )
    reads_kv: ClassVar[bool] = True

    @property
    def records(self) -> bool:
        """See `Router.records`."""
        return self.index == "sent" or self.cold > 0

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`."""
        scores = np.zeros(len(targets))
        if self.queue:
            scores += self.queue * _least(targets.column("queue").astype(float))
        if self.load:
            scores += self.load * _least(targets.column("load").astype(float))
        if self.kv:
            scores += self.kv * (1.0 - targets.column("kv_use"))
        if self.cold and not targets.sent(request).any():
            scores += self.cold * (1.0 - targets.cold_order / max(len(targets) - 1, 1))
        if (self.prefix or self.tier) and (request.prefix or request.chunks or request.cached):
            matched = targets.sent if self.index == "sent" else targets.in_memory
            device = matched(request).astype(float)
            scores += self.prefix * device / request.prompt
            if self.tier:
                all_tiers = targets.cached(request).astype(float)
                scores += self.tier * np.maximum(all_tiers - device, 0.0) / request.prompt
        order = np.roll(scores, -(turn % len(targets)))
        return (int(order.argmax()) + turn) % len(targets)


def _least(values: np.ndarray) -> np.ndarray:
    """1 for the least of the values, 0 for the most."""
    low, high = values.min(), values.max()
    return (high - values) / (high - low) if high > low else np.ones(len(values))
