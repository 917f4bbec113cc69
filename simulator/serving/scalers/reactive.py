"""Replicas in proportion to the sequences in the pool."""

from __future__ import annotations

from math import ceil
from typing import ClassVar

from pydantic import Field, model_validator

from core.quantities import Few
from simulator.serving.scalers.base import Scaler


class Reactive(Scaler):
    """Keeps the sequences of a replica, running and waiting, near a target, as Kubernetes' autoscaler does.

    The pool is left alone while the sequences of a replica are within ``tolerance`` of the target.
    """

    name: ClassVar[str] = "reactive"
    rule: ClassVar[str] = "replicas = sequences / target, within bounds"
    source: ClassVar[str] = "Kubernetes horizontal pod autoscaler"
    target: float = Field(32.0, ge=0.01, le=1e6, description="sequences, running and waiting, of a replica")
    tolerance: float = Field(
        0.1, ge=0, le=100, description="relative distance from the target that changes nothing"
    )
    least: int = Field(1, ge=0, le=4096, description="fewest replicas; 0: an idle pool goes to zero")
    most: Few = Field(64, description="most replicas")

    @property
    def fewest(self) -> int:
        """See `Scaler.fewest`."""
        return min(self.least, 1)

    def target_replicas(self, now: float, replicas: int, running: int, waiting: int, slots: int) -> int:
        """See `Scaler.target_replicas`."""
        needed = (running + waiting) / self.target
        if replicas and abs(needed / replicas - 1.0) <= self.tolerance:
            return replicas
        return min(max(ceil(needed), self.least), self.most)

    @model_validator(mode="after")
    def _check(self) -> Reactive:
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) is above most ({self.most})")
        return self
