"""Replicas by the share of requests that meet their latency targets."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from core.quantities import Few
from simulator.serving.scalers.base import Scaler


class ByTargets(Scaler):
    """One more replica where too few requests meet the workload's targets, one less where all do with room.

    Requests that ended since the last look count, and those that have waited for longer than the target of
    their first token. A replica goes only if the sequences of the others would stay within ``full``.
    """

    name: ClassVar[str] = "by-targets"
    rule: ClassVar[str] = "one replica more while fewer than goal meet the targets, one less while all fit"
    source: ClassVar[str] = "DeepFlow (arXiv 2501.14417), Llumnix (2406.03243): scaling by latency targets"
    watches: ClassVar[bool] = True
    goal: float = Field(
        default=0.95, gt=0, le=1, description="share of requests that should meet the targets"
    )
    full: float = Field(default=0.5, gt=0, le=1, description="share of slots above which no replica goes")
    least: Few = Field(1, description="fewest replicas")
    most: Few = Field(64, description="most replicas")

    def target_replicas(self, now: float, replicas: int, running: int, waiting: int, slots: int) -> int:
        """See `Scaler.target_replicas`: without a request, one less."""
        return self.within(replicas, running, waiting, slots, 1.0)

    def within(self, replicas: int, running: int, waiting: int, slots: int, met: float) -> int:
        """See `Scaler.within`."""
        if met < self.goal:
            return min(replicas + 1, self.most)
        left = max(replicas - 1, 1) * slots
        spare = not waiting and running <= self.full * left
        return max(replicas - 1, self.least) if spare else min(max(replicas, self.least), self.most)

    @model_validator(mode="after")
    def _check(self) -> ByTargets:
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) is above most ({self.most})")
        return self
