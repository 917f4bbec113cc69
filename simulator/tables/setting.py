"""A question of embedding tables with all references resolved and checked."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodels.cluster import Cluster
from hwmodels.kernels.chip import ELEMENT_BYTES
from simulator.tables.libraries import TablesLibrary
from simulator.tables.models import TablesModel
from simulator.tables.shards import Shards
from simulator.tables.workload import TablesWorkload


@dataclass(frozen=True)
class TablesSetting:
    """The fixed inputs of one batch; ``devices`` share the tables and the samples."""

    title: str
    model: TablesModel
    cluster: Cluster
    devices: int
    workload: TablesWorkload
    shards: Shards
    library: TablesLibrary

    @property
    def node_devices(self) -> int:
        """Devices of a node in use."""
        return min(self.cluster.devices_per_node, self.devices)

    @property
    def sums_in_nodes(self) -> bool:
        """Whether pooled vectors are summed within nodes before they cross the network."""
        return self.library.hierarchical and self.devices > self.node_devices

    @property
    def samples(self) -> float:
        """Samples of one device."""
        return self.workload.batch / self.devices

    @property
    def trains(self) -> bool:
        """Whether gradients follow."""
        return self.workload.passes == "training"

    @property
    def row_bytes(self) -> float:
        """Of a row of a table."""
        return ELEMENT_BYTES[self.workload.embeddings] * self.model.width

    @property
    def state_bytes(self) -> float:
        """Of the optimizer's state of a row."""
        if not self.trains:
            return 0.0
        return {"sgd": 0.0, "adagrad": 4.0 * self.model.width, "rowwise-adagrad": 4.0}[
            self.workload.optimizer
        ]

    @property
    def vector_bytes(self) -> float:
        """Of an exchanged vector."""
        return ELEMENT_BYTES[self.workload.exchange] * self.model.width
