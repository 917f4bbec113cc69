"""The deployment's fixed number of replicas."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.scalers.base import Scaler


class FixedReplicas(Scaler):
    """Never changes the pool."""

    name: ClassVar[str] = "fixed"
    rule: ClassVar[str] = "as many replicas as the deployment says"
    source: ClassVar[str] = "default"

    def target_replicas(self, now: float, replicas: int, running: int, waiting: int, slots: int) -> int:
        """See `Scaler.target_replicas`."""
        return replicas
