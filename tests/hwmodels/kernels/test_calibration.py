import numpy as np
import pytest
import yaml

from core.errors import InputError, UnknownNameError
from core.loading import build
from hwmodels.device import devices
from hwmodels.kernels import Calibration, KernelModel, calibrations

FITTED = ["a100-sxm", "b200", "gb200", "h100-sxm", "h200-sxm", "l40s", "rtx-4090", "rtx-pro-6000"]


def test_every_device_has_a_calibration_that_says_what_it_is():
    for device in devices:
        calibration = device.kernels.calibration
        assert calibration.status == ("fitted-elsewhere" if calibration.name in FITTED else "estimated")
        assert calibration.source


def test_devices_of_a_calibration_have_its_number_of_multiprocessors():
    """Memory is saturated by as many on a device with more: constants shared by unlike devices hide whose."""
    for device in devices:
        assert device.kernels.calibration.multiprocessors == device.multiprocessors, device.name


def test_a_calibration_without_a_number_of_multiprocessors_is_refused():
    stated = {
        key: value for key, value in calibrations.definition("l40s").items() if key != "multiprocessors"
    }
    with pytest.raises(InputError, match="multiprocessors"):
        build(Calibration, stated, "mine.yaml")


@pytest.mark.parametrize("name", ["a100-sxm", "b200", "h100-sxm", "l40s"])
def test_fitted_gemms_state_their_error_on_unseen_shapes(name):
    fitted = calibrations.get(name).gemm["bf16"]
    assert fitted.status == "fitted-elsewhere"
    assert fitted.error.shapes > 1000
    assert fitted.error_with_points is not None
    assert fitted.error_with_points.median < fitted.error.median


def test_what_is_carried_over_is_an_estimate_with_a_wider_error():
    base = calibrations.get("h100-sxm")
    other = calibrations.get("h100-pcie")
    assert other.attention_decode["bf16"].form == base.attention_decode["bf16"].form
    assert other.attention_decode["bf16"].status == "estimated"
    assert other.attention_decode["bf16"].error.median == 2 * base.attention_decode["bf16"].error.median
    assert other.residuals is None


def test_libraries_are_carried_over_from_the_same_architecture_only():
    own, carried = (devices.get(name).kernels for name in ("h100-sxm", "gh200"))
    shape = (8, 2048, 2048, 32, 8, 128)
    ratio = carried.using("vllm").attention(*shape, appends=True) / own.uncorrected().using("vllm").attention(
        *shape, appends=True
    )
    assert ratio == pytest.approx(1.0, rel=0.05)
    assert not calibrations.get("mi355x").libraries


@pytest.mark.parametrize(("name", "like"), [("b300", "b200"), ("gb300", "gb200")])
def test_blackwell_ultra_gains_most_in_attention_which_waits_for_exponentials(name, like):
    ultra, before = (devices.get(name).kernels.uncorrected() for name in (name, like))
    dense, exponentials, experts = (
        float(getattr(before, operation)(*sizes)) / float(getattr(ultra, operation)(*sizes))
        for operation, sizes in (
            ("gemm", (8192, 8192, 8192)),
            ("attention", (8, 8192, 8192, 32, 8, 64)),
            ("grouped_gemm", (131072, 4096, 4096, 8)),
        )
    )
    assert 1.0 < experts < 1.045 and 1.02 < dense < 1.2 < exponentials < 1.26


def test_products_scaled_by_blocks_settle_below_those_scaled_by_tensor():
    for name in ("b200", "gb200", "b300", "gb300"):
        device = devices.get(name)
        assert 0.8 < device.settled("mxfp8") / device.settled("fp8") < 1.0


def test_fp32_runs_at_its_own_units_share_of_the_peak():
    for name in ("a100-sxm-80gb", "v100-32gb", "t4", "mi250x-gcd"):
        device = devices.get(name)
        seconds = float(device.kernels.gemm(8192, 8192, 8192, "fp32"))
        assert 0.4 < 2 * 8192**3 / seconds / device.peak("fp32") <= 1.0


def test_errors_by_operation():
    kernels = devices.get("h100-sxm").kernels
    median, p90 = kernels.error("gemm", "bf16")
    assert 0 < median < p90 < 0.15
    assert kernels.uncorrected().error("gemm", "bf16") > (median, p90)
    assert kernels.error("norm")[0] > 0
    with pytest.raises(UnknownNameError, match="gemm"):
        kernels.error("gem")


def test_another_library_changes_only_what_it_has():
    kernels = devices.get("h100-sxm").kernels
    assert kernels.using("nobody").gemm(4096, 4096, 4096) == kernels.gemm(4096, 4096, 4096)
    vllm = kernels.using("vllm")
    assert vllm.gemm(4096, 4096, 4096) == kernels.gemm(4096, 4096, 4096)
    assert vllm.attention(8, 2048, 2048, 32, 8, 128) != kernels.attention(8, 2048, 2048, 32, 8, 128)


def test_points_correct_the_form():
    kernels = devices.get("h100-sxm").kernels
    shapes = (2.0 ** np.arange(4, 13), 4096, 4096)
    ratio = kernels.gemm(*shapes) / kernels.uncorrected().gemm(*shapes)
    assert np.any(np.abs(ratio - 1) > 0.005)
    assert np.all((ratio > 0.5) & (ratio < 2))


def test_a_device_file_finds_the_residuals_beside_it(tmp_path):
    source = devices.get("h100-sxm")
    calibration = source.kernels.calibration.model_dump(exclude_none=True)
    (tmp_path / "points.npz").write_bytes(b"nothing")
    content = source.model_dump() | {"name": "mine", "calibration": calibration | {"residuals": "points.npz"}}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    kernels = devices.get(path).kernels
    assert isinstance(kernels, KernelModel)
    assert kernels.uncorrected().gemm(64, 64, 64) > 0
    with pytest.raises(InputError, match=r"points\.npz"):
        kernels.gemm(64, 64, 64)


def test_wrong_calibrations():
    with pytest.raises(InputError, match="no shipped calibration is called 'h1000'"):
        build(Calibration, {"name": "x", "based_on": "h1000", "status": "estimated", "source": ""}, "x.yaml")
    with pytest.raises(InputError, match="unknown key 'gem'"):
        build(
            Calibration,
            {"name": "x", "based_on": "h100-sxm", "status": "estimated", "source": "", "gem": {}},
            "x.yaml",
        )
    with pytest.raises(UnknownNameError, match="h100-sxm"):
        calibrations.get("h100-sxn")
