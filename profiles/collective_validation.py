"""Predicted against measured collectives, for the points of a folder's `collectives` table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from hwmodels.cluster import Cluster, clusters, usual_cluster
from hwmodels.usual_clusters import USUAL
from profiles.fitting.holdout import errors, stated
from profiles.fitting.links import NAMES
from profiles.importers.physics import device_of
from profiles.points import Points

Array = NDArray[np.floating]
Rows = list[dict[str, Any]]

MEASURED_ON = {"vidur-a100_dgx": "dgx-a100-80gb", "vidur-h100_dgx": "dgx-h100", "l40s": "l40s-8"}
"""Clusters of systems that are not a device's usual one: Vidur's nodes (what joined them is not said), and
the server without peer-to-peer on which aiconfigurator measured L40S."""

OTHER_KERNELS = "custom"
"""Sources of points from serving libraries' all-reduces, which training does not run."""


def validate_collectives(points: Points, measured_on: Cluster | None = None) -> tuple[Rows, Rows]:
    """Predict the points of a table of collectives.

    A system is the name of a cluster, or of a device, which means the vendor's node; the network between
    several such nodes is then unknown.

    Args:
        points: of the table.
        measured_on: the cluster of all points; overrides their ``system`` column.

    Returns:
        One row per operation, system and dtype with the keys of `validate_kernels`, and the reasons of points
        that could not be predicted.
    """
    rows: Rows = []
    skipped: Rows = []
    for system in np.unique(points["system"].astype(str)):
        part = points.where(points["system"].astype(str) == system)
        cluster, network_known = _cluster(str(system)) if measured_on is None else (measured_on, True)
        several, library = (
            part["n_nodes"] > 1,
            np.char.find(part["source"].astype(str), OTHER_KERNELS) >= 0,
        )
        reasons = {
            "no such cluster or device in the catalogue": np.full(len(part), cluster is None),
            "a serving library's own all-reduce": library,
            "the network between the nodes is not named": several & (not network_known),
        }
        left = np.ones(len(part), dtype=bool)
        for reason, wrong in reasons.items():
            if (wrong & left).any():
                row = {"table": "collectives", "gpu": str(system), "points": int((wrong & left).sum())}
                skipped.append(row | {"reason": reason})
            left &= ~wrong
        if cluster is not None:
            _system(rows, skipped, str(system), cluster, part.where(left))
    return rows, skipped


def _cluster(system: str) -> tuple[Cluster | None, bool]:
    """The cluster that a system's name means, and whether its network is that of the measurement."""
    if system in clusters.names():
        return clusters.get(system), True
    if system in MEASURED_ON:
        return clusters.get(MEASURED_ON[system]), False
    device = device_of(system)
    return (usual_cluster(device.name) if device is not None and device.name in USUAL else None), False


def _system(rows: Rows, skipped: Rows, system: str, cluster: Cluster, points: Points) -> None:
    operations, dtypes = points["op"].astype(str), points["dtype"].astype(str)
    for operation in np.unique(operations):
        for dtype in np.unique(dtypes[operations == operation]):
            part = points.where((operations == operation) & (dtypes == dtype))
            named = NAMES.get(str(operation), str(operation))
            try:
                predicted = _predict(cluster, named, str(dtype), part)
            except InputError as error:
                row = {"table": "collectives", "gpu": system, "dtype": str(dtype), "points": len(part)}
                skipped.append(row | {"reason": str(error)})
                continue
            error_figures = stated(errors(predicted, part["time_us"] * 1e-6))
            rows.append(
                {
                    "operation": named,
                    "gpu": system,
                    "dtype": str(dtype),
                    "points": len(part),
                    **error_figures,
                    "form_alone": error_figures,
                    "libraries": [],
                }
            )


def _predict(cluster: Cluster, operation: str, dtype: str, points: Points) -> Array:
    """Seconds of each point, with one group at a time and ranks spread evenly over the nodes."""
    seconds = np.empty(len(points))
    for ranks, nodes in sorted(set(zip(points["n_gpus"].tolist(), points["n_nodes"].tolist(), strict=True))):
        rows = (points["n_gpus"] == ranks) & (points["n_nodes"] == nodes)
        inside = nodes == 1
        job = cluster.resized(ranks if inside else nodes * cluster.devices_per_node)
        stride = 1 if inside else max(cluster.devices_per_node * nodes // ranks, 1)
        seconds[rows] = job.collective(
            operation,
            points["bytes"][rows],
            ranks,
            stride,
            concurrent=False,
            in_switch=not dtype.startswith("int"),
        )
    return seconds
