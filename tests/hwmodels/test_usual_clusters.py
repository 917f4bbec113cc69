import pytest

from hwmodels.device import devices
from hwmodels.errors import UnknownNameError
from hwmodels.usual_clusters import USUAL, usual_cluster


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
