"""What nodes have beside devices: stated figures have sources, absent ones are assumed and said so."""

from __future__ import annotations

import pickle

import pytest

from core.errors import InputError
from core.loading import build
from hwmodels.cluster import Cluster, clusters

OWN = {
    "name": "own",
    "device": "h100-sxm",
    "devices_per_node": 8,
    "nodes": 4,
    "levels": [{"name": "nvlink", "kind": "nvswitch", "devices": 8, "bandwidth": 450e9}],
    "network": {"fabric": "roce", "nics_per_node": 8, "nic_gbps": 400},
}
DRIVES = {"count": 4, "bytes": 3.84e12, "write_bytes_s": 2e9, "read_bytes_s": 5e9}


@pytest.mark.parametrize("name", clusters.names())
def test_every_shipped_figure_has_a_source_and_the_rest_is_assumed(name):
    cluster = clusters.get(name)
    for sourced in (cluster.node, cluster.file_system):
        if sourced is not None:
            assert all(origin.source != "user" for origin in sourced.origins.values())
    full = cluster.full_node
    absent = [key for key, value in dict(cluster.node or {}).items() if value is None and getattr(full, key)]
    told = [line for line in cluster.assumed_storage if not line.endswith("assumed in the cluster's file")]
    assert len(told) == (len(absent) if cluster.node else 4) + (cluster.file_system is None)
    for name, sourced in (("node", cluster.node), ("file_system", cluster.file_system)):
        for key, origin in (sourced.origins if sourced else {}).items():
            stated = any(line.startswith(f"{name}: ") and key in line for line in cluster.assumed_storage)
            assert stated or origin.kind != "assumed"
    assert full.host_bytes and full.host_copy_bytes_s and full.pcie_roots and full.ssds
    assert cluster.full_file_system.client_write_bytes_s <= cluster.network.bandwidth


def test_a_stated_node_is_kept_and_survives_resizing_and_pickling():
    cluster = build(Cluster, OWN | {"node": {"host_bytes": 1e12, "ssds": DRIVES}}, "own.yaml").resized(16)
    assert cluster.full_node.host_bytes == 1e12
    assert cluster.full_node.ssds.count * cluster.full_node.ssds.write_bytes_s == 8e9
    assert pickle.loads(pickle.dumps(cluster)).node == cluster.node
    assert not any("SSD" in line or "host memory" in line for line in cluster.assumed_storage)


def test_copies_of_all_devices_share_the_pcie_roots():
    alone = build(Cluster, OWN | {"node": {"pcie_roots": 8}}, "own.yaml").full_node
    shared = build(Cluster, OWN | {"node": {"pcie_roots": 2}}, "own.yaml").full_node
    assert alone.host_copy_bytes_s == 4 * shared.host_copy_bytes_s


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("node", {"host_bytes": 0}, "host_bytes"),
        ("node", {"ssds": DRIVES | {"write_bytes_s": 5}}, "bytes per second"),
        ("node", {"ssd": DRIVES}, "did you mean 'ssds'"),
        ("file_system", {"write_bytes_s": 1e10}, "read_bytes_s"),
        (
            "file_system",
            {"write_bytes_s": 1e10, "read_bytes_s": 1e10, "client_read_bytes_s": 2e10},
            "client_read",
        ),
    ],
)
def test_bad_storage_is_refused_with_its_key(key, value, told):
    with pytest.raises(InputError, match=r"own\.yaml") as caught:
        build(Cluster, OWN | {key: value}, "own.yaml")
    assert told in str(caught.value)
