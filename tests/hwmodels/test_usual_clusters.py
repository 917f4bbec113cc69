import pytest

from core.errors import UnknownNameError
from hwmodels.cluster import clusters, usual_cluster
from hwmodels.device import devices
from hwmodels.usual_clusters import USUAL


@pytest.mark.parametrize("name", USUAL)
def test_the_usual_cluster_holds_the_device(name):
    assert usual_cluster(name).device == devices.get(name)


def test_an_alias_finds_the_usual_cluster():
    assert usual_cluster("h200") == usual_cluster("h200-sxm")


def test_every_device_stands_in_some_cluster():
    assert set(USUAL) == set(devices.names())


def test_a_device_without_a_cluster_is_named():
    with pytest.raises(UnknownNameError, match="'h100-smx'; did you mean 'h100-sxm'"):
        usual_cluster("h100-smx")


@pytest.mark.parametrize(
    ("name", "cluster", "device"), [("h100", "dgx-h100", "h100-sxm"), ("h20", None, "h20")]
)
def test_a_device_stands_for_its_usual_cluster(name, cluster, device):
    found = clusters.get(name)
    assert found.device.name == device
    assert cluster is None or found == clusters.get(cluster)


def test_an_unknown_cluster_is_refused():
    with pytest.raises(UnknownNameError, match="unknown cluster 'dgx-x9'"):
        clusters.get("dgx-x9")


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("p5e.48xlarge", "h200-sxm"),
        ("g5.48xlarge", "a10g"),
        ("g6e.48xlarge", "l40s"),
        ("p3.16xlarge", "v100-16gb"),
        ("a2-ultragpu-8g", "a100-sxm-80gb"),
        ("a4-highgpu-8g", "b200"),
        ("Standard_ND96isr_H200_v5", "h200-sxm"),
    ],
)
def test_instance_types_of_clouds_are_clusters(name, device):
    cluster = clusters.get(name)
    assert (cluster.device.name, cluster.devices_per_node) == (device, 8)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("nvidia-tesla-a100", "a100-sxm-40gb"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA H20-3e", "h20-3e"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("nvidia-h100-mega-80gb", "h100-sxm"),
    ],
)
def test_labels_of_orchestrators_are_devices(name, device):
    assert devices.resolve(name) == device
