"""The ports by which simulated ranks of a step enter the real links of a cluster."""

from __future__ import annotations

from hwmodels.cluster import Cluster
from hwmodels.topology import NETWORK
from simulator.training.step_graph.step import Port


def ports(cluster: Cluster, stages: int, stride: int) -> dict[str, tuple[Port, ...]]:
    """The port of each pipeline rank on each level of links.

    A simulated rank stands for all devices of its stage; its port is that of the first of them. Stages that
    share a NIC contend for it: collective times assume that all devices behind it send at once, so a stage
    asks for the share of the devices that it has there.

    Args:
        cluster: the cluster.
        stages: pipeline ranks.
        stride: devices between neighbouring ones.
    """
    names = [level.name for level in cluster.levels]
    return {
        name: tuple(_port(cluster, name, stage, stages, stride) for stage in range(stages))
        for name in (*names, NETWORK)
    }


def _port(cluster: Cluster, level: str, stage: int, stages: int, stride: int) -> Port:
    topology, rank = cluster.topology, stage * stride
    link = topology.port(rank, level)
    first = rank - rank % cluster.devices_per_node
    behind = [
        device
        for device in range(first, min(first + cluster.devices_per_node, cluster.devices))
        if topology.port(device, level)[:2] == link[:2]
    ]
    in_stage = sum(device // stride % stages == stage for device in behind)
    return Port(link[:2], link.bandwidth, link.bandwidth * in_stage / len(behind))
