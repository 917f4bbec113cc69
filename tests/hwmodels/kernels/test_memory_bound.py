import numpy as np
import pytest

from core.errors import UnknownNameError
from hwmodels.device import devices
from hwmodels.kernels import Calibration, KernelModel
from hwmodels.kernels.memory_bound import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_large_kernels_run_below_the_bandwidth_and_above_a_third_of_it(kind):
    device = devices.get("a100-sxm-80gb")
    rate = 4e9 / float(device.kernels.memory_bound(4e9, kind))
    assert device.memory_bandwidth / 3 < rate < device.memory_bandwidth


def test_an_empty_kernel_still_takes_its_start_up():
    assert 5e-7 < devices.get("h100-sxm").kernels.memory_bound(0, "norm") < 1e-5


def test_time_rises_with_bytes():
    moved = np.geomspace(1e3, 1e11, 60)
    assert np.all(np.diff(devices.get("h100-sxm").kernels.memory_bound(moved, "activation")) > 0)


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(UnknownNameError, match="softmax"):
        devices.get("h100-sxm").kernels.memory_bound(1e6, "sofmax")


def test_host_copies_are_slower_than_memory():
    device = devices.get("h100-sxm")
    assert device.kernels.host_copy(1e9) > 10 * 1e9 / device.memory_bandwidth


def test_a_variant_is_known_apart_or_stands_for_its_kind():
    device = devices.get("h100-sxm")
    content = device.kernels.calibration.model_dump(exclude_none=True)
    slow = content["memory_bound"]["activation"] | {"form": {"overhead_s": 1e-6, "memory_efficiency": 0.1}}
    content["memory_bound"] = content["memory_bound"] | {"gelu": slow}
    kernels = KernelModel(device, Calibration.model_validate(content))
    assert kernels.memory_bound(1e9, "gelu") > 3 * kernels.memory_bound(1e9, "activation")
    assert kernels.memory_bound(1e9, "silu_mul") == kernels.memory_bound(1e9, "activation")


@pytest.mark.parametrize(
    ("device", "elements", "seconds"),
    [("a100-sxm", 2**26, 362e-6), ("h100-pcie", 2**29, 2.22e-3), ("b200", 2**30, 2.77e-3)],
)
def test_casts_one_by_one_take_what_was_measured(device, elements, seconds):
    kernels = devices.get(device).kernels
    assert kernels.memory_bound(6 * elements) + kernels.cast_wait(elements) == pytest.approx(seconds, rel=0.3)


def test_casts_wait_on_devices_whose_rate_was_measured():
    waits = [
        float(kernels.cast_wait(1e9) / kernels.memory_bound(6e9))
        for kernels in (devices.get(name).kernels for name in ("a100-sxm-80gb", "h100-sxm", "b200"))
    ]
    assert waits == sorted(waits) and waits[-1] > 4 * waits[0]
    assert devices.get("mi300x").kernels.cast_wait(1e9) == 0
