"""Interface of sources of weights: the seconds that a starting replica loads from them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from core.loading import Strict
from hwmodels.cluster import Cluster
from simulator.serving.question.places import Place

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
        return self.weight_bytes * self.on_node

    @property
    def on_node(self) -> int:
        """Devices of one node."""
        return min(self.devices, self.cluster.devices_per_node)

    def read_s(self, place: Place) -> float:
        """Seconds to read the weights from host memory, the nodes' SSDs or shared storage (`remote`).

        Weights of nodes without SSDs lie on shared storage.
        """
        rates = self.cluster.rates
        if place == "host":
            return self.node_bytes / rates.copies(self.on_node)
        if place == "nvme" and rates.ssd_read:
            return self.node_bytes / rates.ssd_read
        return self.node_bytes / rates.file_read(self.nodes)


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
