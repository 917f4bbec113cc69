"""Rates of the streams between device memory and the places where a checkpoint is kept."""

from __future__ import annotations

from core.records import record
from hwmodels.cluster import Cluster


@record()
class SaveRates:
    """Rates of one cluster, B/s.

    Attributes:
        copy: all devices in use of a node to or from its host.
        nic: one node to others.
        ssd_write, ssd_read: all SSDs of a node.
        write, read: all nodes to or from the shared file system.
        client_write, client_read: one node to or from it.
        host_bytes: memory of a node's hosts.
        nodes: in use.
        assumed: what the cluster's file leaves out.
    """

    copy: float
    nic: float
    ssd_write: float
    ssd_read: float
    write: float
    read: float
    client_write: float
    client_read: float
    host_bytes: float
    nodes: int
    assumed: tuple[str, ...]

    @classmethod
    def of(cls, cluster: Cluster) -> SaveRates:
        """Read the rates off a cluster, with defaults where its file leaves them out."""
        rates = cluster.rates
        shared = rates.files
        return cls(
            copy=rates.copies(min(cluster.devices, cluster.devices_per_node)),
            nic=rates.nics,
            ssd_write=rates.ssd_write,
            ssd_read=rates.ssd_read,
            write=shared.write_bytes_s,
            read=shared.read_bytes_s,
            client_write=shared.client_write_bytes_s or shared.write_bytes_s,
            client_read=shared.client_read_bytes_s or shared.read_bytes_s,
            host_bytes=rates.node.host_bytes or 0.0,
            nodes=cluster.nodes_for(cluster.devices),
            assumed=tuple(cluster.assumed_storage),
        )
