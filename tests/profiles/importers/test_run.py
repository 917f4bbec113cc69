"""Choosing an importer, and physics as the judge of what comes in."""

import numpy as np
import pytest

from core.errors import InputError, UnknownNameError
from hwmodels.device import devices
from profiles import points
from profiles.importers import IMPORTERS, import_points
from profiles.importers.physics import device_of, impossible


def test_registry_names():
    assert set(IMPORTERS) == {"nccl-tests", "aiconfigurator", "vidur", "kineto"}
    assert all(importer.name == name for name, importer in IMPORTERS.items())


def test_nothing_to_import(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(InputError, match="holds nothing that can be imported"):
        import_points(tmp_path, tmp_path / "out")


def test_missing_source(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        import_points(tmp_path / "nowhere", tmp_path / "out")


def test_unknown_format(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'kineto'"):
        import_points(tmp_path, tmp_path / "out", "kinetto")


def gemm(device, seconds, m=8192, n=8192, k=8192):
    count = len(seconds)
    values = {"gpu": device, "dtype": "bf16", "layout": "forward", "m": m, "n": n, "k": k, "spread": 0.0}
    columns = {name: np.full(count, value) for name, value in values.items()}
    return points.Points(points.TABLES["gemm"], columns | {"time_us": np.array(seconds) * 1e6})


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h200-sxm", "mi300x"])
def test_the_peak_is_the_border(name):
    at_peak = 2 * 8192**3 / devices.get(name).peak("bf16")
    assert impossible(gemm(name, [0.5 * at_peak, 1.01 * at_peak, 2 * at_peak])).tolist() == [
        True,
        False,
        False,
    ]


def test_memory_is_the_border_of_skinny_products():
    device = devices.get("h100-sxm")
    weights = 2 * 65536 * 8192
    at_peak = weights / device.memory_bandwidth
    shape = {"m": 1, "n": 65536, "k": 8192}
    assert impossible(gemm("h100-sxm", [0.5 * at_peak, 1.1 * at_peak], **shape)).tolist() == [True, False]


def test_unknown_devices_are_believed():
    assert not impossible(gemm("my-own-chip", [1e-9])).any()


def test_a_family_name_means_its_fastest_member():
    found = device_of("a100-sxm")
    family = [device for device in devices if device.name.startswith("a100-sxm-")]
    assert found is not None
    assert found.memory_bandwidth == max(device.memory_bandwidth for device in family)
