"""Links of one machine, fitted to collectives that were measured there."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from hwmodels.cluster import Cluster, clusters
from profiles import points
from profiles.fitting.links import fit_links

TABLE = points.TABLES["collectives"]
SIZES = 2.0 ** np.arange(12, 25, 2)
NAMES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "alltoall": "all_to_all",
    "send_recv": "send_receive",
}
START, PER_BYTE = 200e-6, 1 / 2e9


def machine(bandwidth, calibration, count=4) -> Cluster:
    """A machine of one node whose links have these constants."""
    base = clusters.get("l40s-8")
    level = {
        "name": "here",
        "kind": "ethernet",
        "devices": count,
        "bandwidth": bandwidth,
        "latency_s": 0.0,
        "calibration": calibration,
    }
    fields = {name: getattr(base, name) for name in ("device", "network", "host_watts", "sources")}
    return Cluster.model_validate(
        {"name": "here", "devices_per_node": count, "nodes": 1, "levels": [level], **fields}
    )


def rows(time, groups=(2,), operations=tuple(NAMES)):
    for operation in operations:
        for ranks in groups:
            for size in SIZES:
                identity = {"system": "cpu", "op": operation, "dtype": "fp32", "n_gpus": ranks, "n_nodes": 1}
                yield identity | {"bytes": int(size), "time_us": 1e6 * time(operation, size, ranks)}


def read(tmp_path: Path, made):
    points.write(tmp_path / "collectives.csv", TABLE, made)
    return points.read(tmp_path / "collectives.csv")


def truth(operation, size, ranks):
    hops = (ranks - 1) * (2 if operation == "all_reduce" else 1)
    return START + size * (1.0 if operation == "send_recv" else hops / ranks) * PER_BYTE


def test_a_cluster_with_the_fitted_links_takes_what_was_measured(tmp_path):
    cluster = machine(*fit_links(read(tmp_path, rows(truth, (2, 4))), "here", "made up"))
    for operation, name in NAMES.items():
        for ranks in (2,) if operation == "send_recv" else (2, 4):
            expected = [truth(operation, size, ranks) for size in SIZES]
            assert cluster.collective(name, SIZES, ranks) == pytest.approx(expected, rel=0.01)


def test_a_few_disturbed_points_hardly_pull(tmp_path):
    def disturbed(operation, size, ranks):
        return truth(operation, size, ranks) * (4.0 if size in SIZES[2:4] else 1.0)

    cluster = machine(*fit_links(read(tmp_path, rows(disturbed)), "here", "made up"))
    assert cluster.collective("all_reduce", SIZES[-1], 2) == pytest.approx(
        truth("all_reduce", SIZES[-1], 2), rel=0.1
    )


def test_what_was_not_measured_takes_the_slowest_that_was(tmp_path):
    cluster = machine(*fit_links(read(tmp_path, rows(truth, operations=("all_reduce",))), "here", "made up"))
    assert cluster.collective("all_to_all", 1e6, 2) > 0
    assert cluster.collective("broadcast", 1e8, 2) == pytest.approx(1e8 * PER_BYTE, rel=0.05)


def test_too_few_points_are_counted(tmp_path):
    few = list(rows(truth, operations=("all_reduce",)))[:2]
    with pytest.raises(InputError, match="2 collectives inside a node are too few"):
        fit_links(read(tmp_path, few), "here", "made up")
