"""Weights over the network: from storage, or from a replica that runs."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.starts.base import Loaded, WeightSource


class Remote(WeightSource):
    """Shared storage: the cluster's file system, as fast as one client of it."""

    name: ClassVar[str] = "remote"
    rule: ClassVar[str] = "bytes of a node over its rate from the shared file system"
    source: ClassVar[str] = "cluster files (`file_system`)"

    def load_s(self, replica: Loaded) -> float:
        """See `WeightSource.load_s`."""
        return replica.read_s("remote")


class Peer(WeightSource):
    """A running replica on another node: each device reads its shard through its share of the NICs."""

    name: ClassVar[str] = "peer"
    rule: ClassVar[str] = "bytes of a device over its share of the NICs; from disk where none runs"
    source: ClassVar[str] = "DeepFlow (arXiv 2501.14417), NPU-fork over RoCE"
    running: ClassVar[bool] = True
    instead: ClassVar[str] = "disk"

    def load_s(self, replica: Loaded) -> float:
        """See `WeightSource.load_s`."""
        return replica.node_bytes / replica.cluster.rates.sends(replica.on_node)


class Fork(WeightSource):
    """A running replica of the same node: each device reads its shard over the links inside the node."""

    name: ClassVar[str] = "fork"
    rule: ClassVar[str] = "bytes of a device over the links inside the node; from disk where none runs"
    source: ClassVar[str] = "DeepFlow (arXiv 2501.14417), NPU-fork over HCCS"
    running: ClassVar[bool] = True
    instead: ClassVar[str] = "disk"

    def load_s(self, replica: Loaded) -> float:
        """See `WeightSource.load_s`."""
        return float(replica.cluster.collective("send_receive", replica.weight_bytes, 2, 1))
