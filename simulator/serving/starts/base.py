"""Interface of sources of weights: the seconds that a starting replica loads from them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from core.loading import Strict
from hwmodels.cluster import Cluster

WAKE_S = 0.23
"""Wake-up of a sleeping vLLM 0.11 beside its weights, s: 30B on one A100 and 235B on four, whose pairs share
a PCIe root, at one rate (vLLM blog, Sleep Mode, October 2025; rows of A100 that may be read)."""


@dataclass(frozen=True)
class Loaded:
    """What is loaded, and onto what.

    Attributes:
        cluster: nodes of the replica.
        devices: that it occupies.
        weight_bytes: on one device.
    """

    cluster: Cluster
    devices: int
    weight_bytes: float

    @property
    def nodes(self) -> int:
        """Nodes that hold its devices."""
        return ceil(self.devices / self.cluster.devices_per_node)

    @property
    def node_bytes(self) -> float:
        """Weights of one node's devices."""
        return self.weight_bytes * min(self.devices, self.cluster.devices_per_node)

    @property
    def on_root(self) -> int:
        """Devices that load through one link between host and devices."""
        per_node = self.cluster.devices_per_node
        behind = ceil(per_node / (self.cluster.full_node.pcie_roots or per_node))
        return min(behind, self.devices)

    def copy_s(self) -> float:
        """Seconds to copy the weights from host memory: devices behind one PCIe root share its link."""
        rate = self.cluster.device.kernels.calibration.host_copy.bandwidth
        return self.on_root * self.weight_bytes / rate


class WeightSource(Strict):
    """One source. Its fields are its parameters (`start.options`).

    Attributes:
        name: name in deployments.
        rule: description for people.
        source: publication.
        running: a running replica of the pool is needed; without one, `instead` loads.
        instead: name of the source without one.
        asleep: the engine's processes and graphs have stayed, so only weights are loaded.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]
    running: ClassVar[bool] = False
    instead: ClassVar[str] = ""
    asleep: ClassVar[bool] = False

    @abstractmethod
    def load_s(self, replica: Loaded) -> float:
        """Seconds to load the weights of a replica."""
