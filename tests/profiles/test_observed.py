"""A CPU that no catalogue has, described by its own points."""

from pathlib import Path

import pytest
import yaml

from core.errors import InputError
from hwmodels.device import devices
from profiles.observed import observed_device

DEVICE = {
    "name": "cpu",
    "full_name": "AMD EPYC",
    "kind": "cpu",
    "dtypes": ["fp32"],
    "multiprocessors": 4,
    "last_level_cache_bytes": 33_554_432,
    "memory_bytes": 2**34,
}
OBSERVED = {"points": {"gemm": 24}, "flops": {"fp32": 1e11}, "memory_bandwidth": 3e10}


def folder(tmp_path: Path, device=DEVICE, observed=OBSERVED) -> Path:
    content = {"device": device, "observed": observed, "runs": []}
    (tmp_path / "provenance.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


def test_the_best_points_stand_in_for_the_data_sheet(tmp_path):
    device = observed_device(folder(tmp_path))
    assert (device.vendor, device.generation.name, device.multiprocessors) == ("amd", "cpu", 4)
    assert device.peak("fp32") == 1e11
    # what nothing was measured of is an estimate, and says so
    assert device.kernels.calibration.status == "estimated"
    assert device.kernels.gemm(1024, 1024, 1024, "fp32") > 2 * 1024**3 / 1e11


def test_a_steady_clock_makes_a_training_step_no_slower_than_a_benchmark(tmp_path):
    kernels = observed_device(folder(tmp_path)).kernels
    assert kernels.sustained().gemm(256, 256, 256, "fp32") == kernels.gemm(256, 256, 256, "fp32")
    gpu = devices.get("a100-sxm-80gb").kernels
    assert gpu.sustained().gemm(256, 256, 256) > gpu.gemm(256, 256, 256)


@pytest.mark.parametrize(
    ("device", "observed", "message"),
    [
        ({**DEVICE, "kind": "cuda", "full_name": "RTX 0815"}, OBSERVED, "RTX 0815 is in no catalogue"),
        (DEVICE, {"flops": {"fp32": 1e11}}, "no points of copy say .*--operations copy -o"),
        (DEVICE, {**OBSERVED, "flops": {}}, "no points of gemm say"),
        (DEVICE, {"flops": {}}, "no points of gemm and copy say .*--operations gemm,copy"),
    ],
)
def test_what_is_missing_is_named(tmp_path, device, observed, message):
    with pytest.raises(InputError, match=message):
        observed_device(folder(tmp_path, device, observed))


def test_points_without_provenance(tmp_path):
    with pytest.raises(InputError, match="holds no measured points; meshwright profile --device cpu"):
        observed_device(tmp_path)
