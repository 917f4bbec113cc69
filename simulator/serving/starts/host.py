"""Weights from host memory."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from simulator.serving.starts.base import WAKE_S, Loaded, WeightSource

PAGEABLE = 0.55
"""Rate of copies from pageable over page-locked memory: 0.43 and 0.76 on two machines (NVIDIA's blog, How to
Optimize Data Transfers in CUDA C/C++, 2012); their geometric mean."""


class Host(WeightSource):
    """Weights lie in the hosts' memory (preloaded); devices behind one PCIe root share its link."""

    name: ClassVar[str] = "host"
    rule: ClassVar[str] = "bytes over the host link, shared by the devices of a PCIe root"
    source: ClassVar[str] = "DeepFlow (arXiv 2501.14417), preloading into DRAM"
    pinned: bool = Field(False, description="page-locked memory; the page cache is copied at a lower rate")

    def load_s(self, replica: Loaded) -> float:
        """See `WeightSource.load_s`."""
        return replica.read_s("host") / (1.0 if self.pinned else PAGEABLE)


class AsleepInHost(Host):
    """vLLM's sleep level 1: processes and graphs stay, weights wait in host memory."""

    name: ClassVar[str] = "sleep-1"
    rule: ClassVar[str] = "a sleeping engine wakes and copies its weights from host memory"
    source: ClassVar[str] = "vLLM blog, Sleep Mode, October 2025"
    asleep: ClassVar[bool] = True
    pinned: bool = Field(True, description="page-locked memory, as vLLM's backup of the weights")
    wake: float = Field(WAKE_S, ge=0, le=60, description="seconds to wake beside the weights")

    def load_s(self, replica: Loaded) -> float:
        """See `WeightSource.load_s`."""
        return self.wake + super().load_s(replica)
