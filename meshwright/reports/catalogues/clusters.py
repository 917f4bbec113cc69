"""Clusters: their links and networks, and what collectives cost on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from core.sources import Origin, Sourced
from hwmodels.cluster import Cluster, clusters
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts, table
from meshwright.reports.units import scaled, seconds

SHOWN_BYTES = 2**30
SHOWN_DOMAINS = 16
SHOWN_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def _brief(cluster: Cluster) -> dict[str, Any]:
    network, bisection = cluster.network, cluster.topology.bisection_bandwidth()
    return {
        "name": cluster.name,
        "description": cluster.description,
        "device": cluster.device.name,
        "nodes": cluster.nodes,
        "devices_per_node": cluster.devices_per_node,
        "levels": [
            {
                "name": level.name,
                "kind": level.kind,
                "devices": level.devices,
                "bandwidth_bytes_per_s": level.bandwidth,
                "latency_s": level.latency,
                "bisection_bytes_per_s": bisection[level.name],
                "calibration": level.constants.name,
            }
            for level in cluster.levels
        ],
        "network": {
            "fabric": network.fabric,
            "nics_per_node": network.nics_per_node,
            "nic_bytes_per_s": network.nic_gbps * 1e9 / 8,
            "shape": network.shape,
            "oversubscription": network.oversubscription,
            "nodes_per_leaf": network.nodes_per_leaf,
            "latency_s": network.latency,
            "bisection_bytes_per_s": bisection["network"],
        },
        "host_watts": cluster.host_watts,
        "host_slowdown": cluster.host_slowdown,
        "unbound_slowdown": cluster.unbound_slowdown,
        "assumed": list(cluster.assumed),
    }


def _more(cluster: Cluster) -> dict[str, Any]:
    return {
        "sources": dict(cluster.sources),
        "node": {
            **cluster.full_node.model_dump(mode="json"),
            "sources": {path: str(origin) for path, origin in _origins(cluster.node)},
        },
        "file_system": {
            **cluster.full_file_system.model_dump(mode="json"),
            "sources": {path: str(origin) for path, origin in _origins(cluster.file_system)},
        },
        "assumed_storage": cluster.assumed_storage,
        "rates": [
            {"name": name, "bytes_per_s": limit.bytes_s, "source": limit.source, "kind": limit.kind}
            for name, limit in cluster.rates.limits().items()
        ],
        "collectives": _collectives(cluster),
    }


def _collectives(cluster: Cluster) -> list[dict[str, Any]]:
    """Collectives of 1 GiB inside a domain and across several of them, all devices of a node taking part."""
    inside = cluster.domain
    across = inside * min(SHOWN_DOMAINS, max(cluster.devices // inside, 1))
    rows = []
    for operation in SHOWN_OPERATIONS:
        for ranks in dict.fromkeys(count for count in (inside, across) if count > 1):
            elapsed = float(np.ravel(cluster.collective(operation, SHOWN_BYTES, ranks))[0])
            steps = 2 if operation == "all_reduce" else 1
            busy = SHOWN_BYTES / elapsed * steps * (ranks - 1) / ranks
            rows.append(
                {"operation": operation, "ranks": ranks, "bytes": SHOWN_BYTES, "time_s": elapsed}
                | {"bus_bandwidth_bytes_per_s": busy}
            )
    return rows


def _origins(sourced: Sourced | None) -> list[tuple[str, Origin]]:
    return list(sourced.origins.items()) if sourced else []


def _storage(cluster: Cluster) -> dict[str, str]:
    node, shared = cluster.full_node, cluster.full_file_system
    drives = node.ssds
    local = "none"
    if drives and drives.count:
        rates = f"{scaled(drives.write_bytes_s, 'B/s')} write, {scaled(drives.read_bytes_s, 'B/s')} read each"
        local = f"{drives.count} of {scaled(drives.bytes, 'B')}, {rates}"
    return {
        "host memory": f"{scaled(node.host_bytes or 0, 'B')} per node, "
        f"{scaled(node.host_copy_bytes_s or 0, 'B/s')} from its devices over {node.pcie_roots} PCIe roots",
        "SSDs of a node": local,
        "file system": f"{scaled(shared.write_bytes_s, 'B/s')} write, "
        f"{scaled(shared.read_bytes_s, 'B/s')} read",
        "storage assumed": "; ".join(cluster.assumed_storage),
    }


def _inside(cluster: Cluster) -> str:
    return " + ".join(f"{level.kind}({level.devices})" for level in cluster.levels)


def _about(cluster: Cluster) -> dict[str, str]:
    network = cluster.network
    far = network.latency + cluster.topology.crossing_s
    return {
        "description": cluster.description,
        "devices": f"{cluster.nodes} nodes of {cluster.devices_per_node} {cluster.device.name}",
        **{
            f"level {level.name}": f"{level.kind} between {level.devices} devices, "
            f"{scaled(level.bandwidth, 'B/s')} per device and direction, constants of {level.constants.name}"
            for level in cluster.levels
        },
        "network": f"{network.fabric}, {network.nics_per_node} NICs of {network.nic_gbps:g} Gb/s per node, "
        f"{network.shape}, oversubscription {network.oversubscription:g}",
        "latency": f"{seconds(network.latency)} one way below a leaf, {seconds(far)} between leaves",
        "bisection": ", ".join(
            f"{name} {scaled(rate, 'B/s')}" for name, rate in cluster.topology.bisection_bandwidth().items()
        ),
        "host power": f"{cluster.host_watts:.0f} W per node beside its devices",
        "host": f"launches kernels {cluster.host_slowdown:g} times as slowly as a Xeon"
        if cluster.host_slowdown > 1
        else "",
        **_storage(cluster),
        "assumed": "; ".join(cluster.assumed),
    }


def _parts(cluster: Cluster) -> list[Table]:
    collectives = [
        [
            row["operation"],
            str(row["ranks"]),
            seconds(row["time_s"]),
            scaled(row["bus_bandwidth_bytes_per_s"], "B/s"),
        ]
        for row in _collectives(cluster)
    ]
    return [
        table(
            ("collective", "ranks", "time", "bus bandwidth"),
            collectives,
            "Collectives of 1 GiB, neighbouring ranks",
        ),
        facts(
            {
                name: f"{scaled(limit.bytes_s, 'B/s')}; {limit.kind}: {limit.source}"
                for name, limit in cluster.rates.limits().items()
            },
            "Rates of a node, each way",
        ),
        facts(dict(cluster.sources), "Sources"),
    ]


KIND = Kind(
    names=clusters.names,
    get=clusters.get,
    brief=_brief,
    more=_more,
    cells={
        "cluster": lambda cluster: cluster.name,
        "device": lambda cluster: cluster.device.name,
        "inside a node": _inside,
        "fabric": lambda cluster: cluster.network.fabric,
        "nodes": lambda cluster: str(cluster.nodes),
        "GPUs/node": lambda cluster: str(cluster.devices_per_node),
        "NICs x Gb/s": lambda cluster: f"{cluster.network.nics_per_node} x {cluster.network.nic_gbps:g}",
    },
    about=_about,
    parts=_parts,
    text_columns=4,
)
