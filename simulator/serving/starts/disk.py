"""Weights from the SSDs of the replica's nodes."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from core.quantities import Bandwidth
from simulator.serving.starts.base import WAKE_S, Loaded, WeightSource


class Disk(WeightSource):
    """The node's SSDs at their rate, shared by its devices."""

    name: ClassVar[str] = "disk"
    rule: ClassVar[str] = "bytes of a node over the rate of its SSDs"
    source: ClassVar[str] = "DeepFlow (arXiv 2501.14417), table of cold starts"
    rate: Bandwidth | None = Field(
        None, description="B/s of a node with its loader; default: the cluster's SSDs"
    )

    def load_s(self, replica: Loaded) -> float:
        """See `WeightSource.load_s`."""
        if self.rate is not None:
            return replica.node_bytes / self.rate
        return replica.read_s("nvme")


class AsleepOnDisk(Disk):
    """vLLM's sleep level 2: processes and graphs stay, weights were dropped and are read again."""

    name: ClassVar[str] = "sleep-2"
    rule: ClassVar[str] = "a sleeping engine wakes and reads its weights from the SSDs"
    source: ClassVar[str] = "vLLM blog, Sleep Mode, October 2025"
    asleep: ClassVar[bool] = True
    wake: float = Field(WAKE_S, ge=0, le=60, description="seconds to wake beside the weights")

    def load_s(self, replica: Loaded) -> float:
        """See `WeightSource.load_s`."""
        return self.wake + super().load_s(replica)
