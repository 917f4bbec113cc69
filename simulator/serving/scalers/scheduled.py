"""Replicas by a timetable, started ahead of time."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from core.quantities import Few
from simulator.serving.scalers.base import Scaler


class Scheduled(Scaler):
    """Follows a cycle of counts; replicas start early enough to be up when their entry begins."""

    name: ClassVar[str] = "scheduled"
    rule: ClassVar[str] = "the timetable's count, looking one start ahead"
    source: ClassVar[str] = "scheduled actions of cloud autoscalers"
    period: float = Field(3600.0, ge=1, le=1e7, description="seconds that each entry lasts")
    replicas: list[Few] = Field(min_length=1, description="replicas, one entry after the other, in a cycle")

    def target_replicas(self, now: float, replicas: int, running: int, waiting: int, slots: int) -> int:
        """See `Scaler.target_replicas`."""
        ahead = int((now + self.start + self.interval) // self.period)
        entries = range(int(now // self.period), ahead + 1)
        return max(self.replicas[entry % len(self.replicas)] for entry in entries)
