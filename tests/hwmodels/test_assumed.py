"""A cluster file may leave out what is hard to know, and says what is assumed."""

import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from hwmodels.collectives.calibration import link_calibrations

OWN = {
    "name": "mine",
    "device": "h100-sxm",
    "devices_per_node": 8,
    "nodes": 4,
    "levels": [{"name": "nvlink", "kind": "nvswitch", "devices": 8, "bandwidth": 450e9}],
    "network": {"fabric": "roce", "nics_per_node": 8, "nic_gbps": 400},
}


def test_a_short_file_is_a_cluster_and_lists_what_is_assumed():
    found = clusters.get(OWN)
    assert found.levels[0].calibration == "nvlink4"
    assert found.network.nodes_per_leaf == 16
    assert found.host_watts == pytest.approx(0.43 * 8 * found.device.tdp_watts)
    assert [text.partition(":")[0] for text in found.assumed] == ["level nvlink", "network", "host_watts"]
    assert found.resized(8).assumed == found.assumed


def test_what_is_stated_is_not_assumed():
    level = {**OWN["levels"][0], "calibration": "nvlink5"}
    network = {**OWN["network"], "nodes_per_leaf": 4}
    found = clusters.get({**OWN, "levels": [level], "network": network, "host_watts": 100})
    assert (found.levels[0].calibration, found.network.nodes_per_leaf, found.host_watts) == (
        "nvlink5",
        4,
        100,
    )
    assert found.assumed == []
    assert all(cluster.assumed == [] for cluster in clusters)


@pytest.mark.parametrize(
    ("level", "name"),
    [
        ({"kind": "nvlink", "bandwidth": 300e9}, "nvlink3"),
        ({"kind": "nvswitch", "bandwidth": 900e9}, "nvlink5"),
        ({"kind": "pcie", "bandwidth": 26e9}, "pcie4"),
        ({"kind": "infinity-fabric", "bandwidth": 448e9, "mesh": True}, "xgmi-mesh"),
        ({"kind": "infinity-fabric", "bandwidth": 150e9}, "xgmi-node"),
        ({"kind": "ethernet", "bandwidth": 262e9}, "xgmi-mesh"),
    ],
)
def test_links_are_taken_as_the_nearest_that_were_measured(level, name):
    found = clusters.get({**OWN, "levels": [{"name": "inner", "devices": 8, **level}]})
    assert found.levels[0].calibration == name
    assert name in link_calibrations.names()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "h100-sx"}, "did you mean 'h100-sxm'"),
        ({"levels": [{**OWN["levels"][0], "kind": "nvswich"}]}, "did you mean 'nvswitch'"),
        ({"devices_per_node": "8"}, "devices_per_node"),
        ({"network": {}}, "key 'network.fabric' is missing"),
        ({"levels": 3}, "levels"),
    ],
)
def test_a_wrong_key_is_told_alone(change, message):
    with pytest.raises(InputError) as error:
        clusters.get({**OWN, **change})
    assert message in str(error.value)
    assert "host_watts" not in str(error.value)
    assert "calibration" not in str(error.value)
