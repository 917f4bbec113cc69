"""Clusters: the catalogue, what can be derived from one, and what a user's own file may hold."""

import numpy as np
import pytest
import yaml

from core.errors import InputError, UnknownNameError
from hwmodels.cluster import clusters
from hwmodels.collectives.calibration import FAMILIES

NAMES = [
    "dgx-1p",
    "dgx-1v",
    "dgx-2",
    "dgx-a100-40gb",
    "dgx-a100-80gb",
    "selene",
    "dgx-h100",
    "dgx-h200",
    "dgx-b200",
    "gb200-nvl72",
    "gb300-nvl72",
    "fire-flyer-2",
    "frontier",
    "lumi",
    "leonardo",
    "perlmutter",
    "jean-zay-a100",
    "aws-p4d",
    "aws-p4de",
    "aws-p5",
    "aws-p6-b200",
    "azure-nd-a100-v4",
    "azure-ndm-a100-v4",
    "azure-nd-h100-v5",
    "gcp-a3-high",
    "gcp-a3-mega",
    "mi300x-8",
    "mi325x-8",
    "mi355x-8",
    "gaudi2-8",
    "l40s-8",
]

MINE = {
    "name": "mine",
    "device": "a100-pcie-80gb",
    "devices_per_node": 4,
    "nodes": 2,
    "levels": [
        {
            "name": "pcie",
            "kind": "pcie",
            "devices": 4,
            "bandwidth": 25e9,
            "latency_s": 2e-6,
            "calibration": "pcie4",
        }
    ],
    "network": {
        "fabric": "roce",
        "nics_per_node": 1,
        "nic_gbps": 100,
        "latency_s": 2e-6,
        "nodes_per_leaf": 2,
    },
    "host_watts": 600,
    "sources": {},
}


def changed(path, value):
    """Return MINE with one key replaced, in a copy."""
    definition = yaml.safe_load(yaml.safe_dump(MINE))
    place = definition
    *way, last = path
    for key in way:
        place = place[key]
    place[last] = value
    return definition


@pytest.mark.parametrize("name", NAMES)
def test_every_promised_cluster_works(name):
    cluster = clusters.get(name)
    for operation in FAMILIES:
        times = cluster.collective(operation, [[1e3], [1e9]], [2, cluster.devices_per_node, cluster.devices])
        assert np.all((times > 1e-6) & (times < 100))
        assert np.all(times[1] > times[0])
    assert cluster.sources


def test_nvl72_fills_racks_evenly():
    rack = clusters.get("gb200-nvl72")
    assert rack.domain == 72
    assert rack.resized(72).domain == 72
    assert rack.resized(128).domain == 64
    assert rack.resized(2304).domain == 72
    assert rack.resized(32).domain == 72
    assert rack.resized(128).level_of(64) == 0
    assert rack.resized(128).level_of(128) == 1


def test_levels_of_a_gcd():
    lumi = clusters.get("lumi").resized(64)
    assert lumi.level_of([2, 8, 4, 2, 16, 2], [1, 1, 2, 4, 1, 8]).tolist() == [0, 1, 1, 1, 2, 2]


def test_another_network():
    cluster = clusters.get("aws-p5").with_network(400, fabric="infiniband")
    assert cluster.network.bandwidth == pytest.approx(50e9)
    assert cluster.network.calibration is None
    same = clusters.get("aws-p5").with_network(6400)
    assert same.network.calibration == "efa-v2"
    slow, fast = (c.resized(16).collective("all_gather", 1e9, 16) for c in (cluster, same))
    assert slow > 5 * fast


def test_another_device():
    assert clusters.get("dgx-h100").with_device("h200-sxm").device.name == "h200-sxm"
    with pytest.raises(UnknownNameError, match="did you mean 'h200-sxm'"):
        clusters.get("dgx-h100").with_device("h200sxm")


def test_price_and_power_follow_the_devices_in_use():
    cluster = clusters.get("dgx-h100").resized(12)
    assert cluster.nodes_for(12) == 2
    assert cluster.price_per_hour_usd == pytest.approx(12 * cluster.device.price_per_hour_usd)
    assert cluster.power_watts(1) == pytest.approx(12 * 700 + 12 / 8 * cluster.host_watts)
    assert cluster.power_watts(0) < cluster.power_watts(0.5) < cluster.power_watts(1)


@pytest.mark.parametrize("count", [0, -8, 10**9])
def test_more_devices_than_there_are(count):
    with pytest.raises(InputError, match=f"asked for {count}"):
        clusters.get("dgx-h100").resized(count)


@pytest.mark.parametrize(
    ("gbps", "fabric"), [(-1, None), (0, None), (float("nan"), None), (100, "token-ring")]
)
def test_wrong_network(gbps, fabric):
    with pytest.raises(InputError, match=r"cluster dgx-h100: .*network\."):
        clusters.get("dgx-h100").with_network(gbps, fabric)


def test_a_users_file_loads_by_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(MINE))
    cluster = clusters.get(path)
    assert (cluster.devices, cluster.device.name) == (8, "a100-pcie-80gb")
    path.write_text(path.read_text() + "devises: 4\n")
    with pytest.raises(InputError, match=r"mine\.yaml: unknown key 'devises'; did you mean 'devices'"):
        clusters.get(path)


def test_an_inline_device(tmp_path):
    device = clusters.get("dgx-h100").device.model_dump()
    assert clusters.get(changed(["device"], {**device, "name": "h100-mine"})).device.name == "h100-mine"
    with pytest.raises(InputError, match=r"device: .*memory_bandwidth.*above 0"):
        clusters.get(changed(["device"], {**device, "memory_bandwidth": -1}))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["levels", 0, "bandwidth"], -25e9, r"levels\.0\.bandwidth: .*above 0, found -25"),
        (["levels", 0, "bandwidth"], float("nan"), r"levels\.0\.bandwidth: .*finite number, found nan"),
        (["levels", 0, "calibration"], "pcie9", r"levels\.0\.calibration: unknown link calibration"),
        (["levels", 0, "devices"], 3, "last level must join whole nodes of 4, found 3"),
        (["levels", 0, "name"], "nic", "names must differ"),
        (["levels"], [], "levels: .*at least 1 item"),
        (["network", "nic_gbps"], 0, r"network\.nic_gbps: .*above 0, found 0"),
        (["network", "fabric"], "infinband", r"network\.fabric: .*did you mean 'infiniband'"),
        (["network", "oversubscription"], 0.5, r"network\.oversubscription"),
        (["network", "calibration"], "hdr", r"network\.calibration: unknown fabric 'hdr'"),
        (["device"], "a100-smx", "device: unknown device 'a100-smx'; did you mean"),
        (["device"], 7, "device"),
        (["devices"], 9, "2 nodes have fewer than 9 devices"),
        (["nodes"], "two", "nodes: must be a whole number"),
    ],
)
def test_wrong_definitions_are_refused(path, value, message):
    with pytest.raises(InputError, match=message):
        clusters.get(changed(path, value))


def test_another_number_of_devices_in_a_node():
    half = clusters.get("dgx-h100").with_node(4)
    assert (half.devices_per_node, half.domain) == (4, 4)
    assert half.network.bandwidth == clusters.get("dgx-h100").network.bandwidth
    assert half.resized(8).level_of(8) == 1


def test_a_pair_of_a_quad_has_the_links_between_two():
    """Four GH200 have 6 of 18 NVLinks to each other: a pair sends at a third of all four's rate."""
    for name in ("gh200-quad", "jupiter", "alps", "isambard-ai"):
        quad = clusters.get(name)
        pair, four = (float(quad.collective("all_gather", 2e9, size)) for size in (2, 4))
        assert 1e9 / pair < 150e9 and 2.5 < (1.5e9 / four) / (1e9 / pair) < 4.0
        switched = float(quad.reaching(1.0).collective("all_gather", 2e9, 4))
        assert switched / four == pytest.approx(quad.levels[0].reached, rel=0.05)
        assert quad.host_slowdown > 1
    assert clusters.get("jupiter").resized(16384).devices == 16384


def test_more_devices_in_a_node_than_its_levels_join():
    wide = clusters.get("gh200-node").with_node(4)
    assert (wide.devices_per_node, wide.domain, len(wide.levels)) == (4, 4, 1)


def test_a_short_definition_has_the_links_of_the_usual_cluster():
    lab = clusters.get({"name": "lab", "device": "h100-sxm", "nodes": 4, "nics": 4, "nic_gbps": 200})
    usual = clusters.get("h100-sxm")
    assert (lab.devices, lab.devices_per_node, lab.levels) == (32, 8, usual.levels)
    assert (lab.network.nics_per_node, lab.network.nic_gbps) == (4, 200)
    assert lab.network.fabric == usual.network.fabric
    assert f"links: those of {usual.name}" in lab.assumed
    same = clusters.get({"name": "lab", "device": "h100-sxm", "nodes": 4, "gpus_per_node": 8})
    assert same.network == usual.network


def test_what_a_short_definition_lacks_is_named_alone():
    with pytest.raises(InputError) as refused:
        clusters.get({"name": "lab", "device": "h100-sxm", "nodes": 4, "gpus_per_node": 4})
    assert "levels: must be stated for nodes of 4 h100-sxm" in str(refused.value)
    assert "'devices'" not in str(refused.value)


def test_a_smaller_node_has_the_lanes_of_its_devices_and_nics_in_proportion():
    lab = clusters.get({"name": "lab", "devices": "a6000", "nodes": 6, "gpus_per_node": 4})
    usual = clusters.get("a6000-8")
    assert (lab.devices, lab.domain, lab.levels[0].bandwidth) == (24, 4, usual.levels[0].bandwidth)
    assert lab.network.nics_per_node == max(1, usual.network.nics_per_node // 2)
    assert "links: those of a6000-8" in lab.assumed


def test_stated_levels_and_the_usual_network():
    nvlink = [{"name": "nvlink", "kind": "nvlink", "devices": 6, "bandwidth": 450e9}]
    stated = {"gpu": "h100-sxm", "gpus_per_node": 6, "nodes": 6, "nics": 2, "nic_gbps": 200, "levels": nvlink}
    lab = clusters.get({"name": "lab", **stated})
    assert (lab.domain, lab.network.nics_per_node, lab.network.nic_gbps) == (6, 2, 200)
    assert lab.network.fabric == clusters.get("dgx-h100").network.fabric
    assert "network: those of dgx-h100" in lab.assumed
