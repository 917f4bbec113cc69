"""The catalogue of accelerators: complete, plausible, and strict about what users write."""

import pytest

from core.errors import InputError
from hwmodels.device import devices

NAMES = [
    "p100-16gb",
    "v100-16gb",
    "v100-32gb",
    "t4",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "a100-sxm-64gb",
    "a10g",
    "a6000",
    "l40s",
    "l4",
    "rtx-4090",
    "h100-sxm",
    "h100-pcie",
    "h100-96gb",
    "h200-sxm",
    "h200-nvl",
    "gh200",
    "rtx-pro-6000",
    "rtx-pro-6000-server",
    "rtx-pro-4500",
    "b200",
    "gb200",
    "b300",
    "gb300",
    "mi250x-gcd",
    "mi300x",
    "mi325x",
    "mi350x",
    "mi355x",
    "gaudi2",
]


def definition(**changed):
    return {**devices.get("h100-sxm").model_dump(), **changed}


def test_every_promised_device_is_there():
    assert set(NAMES) <= set(devices.names())


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_plausible(name):
    device = devices.get(name)
    widest = device.peak_flops.get("bf16") or device.peak_flops["fp16"]
    assert widest >= device.peak_flops["fp32"]
    assert 100 < widest / device.memory_bandwidth * 2 < 1000 or device.generation.name in ("pascal", "ampere")
    assert device.idle_watts < device.tdp_watts / 3
    assert device.l2_bytes < device.memory_bytes / 100
    assert {"peak_flops", "memory_bytes", "price_per_hour_usd"} <= set(device.sources)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("h200", "h200-sxm"),
        ("H200-NVL", "h200-nvl"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("H100-SXM5-80GB", "h100-sxm"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("GB200 NVL72", "gb200"),
        ("rtx4090", "rtx-4090"),
        ("RTX PRO 6000", "rtx-pro-6000"),
        ("a100_sxm_40gb", "a100-sxm-40gb"),
        ("a100", "a100-sxm-80gb"),
        ("MI355X", "mi355x"),
    ],
)
def test_devices_are_found_as_people_write_them(written, meant):
    assert devices.resolve(written) == meant
    assert devices.get(written) is devices.get(meant)


@pytest.mark.parametrize("written", ["NVIDIA H100 141GB", "A100 40GB PCIe", "H200 80GB"])
def test_a_size_of_memory_that_a_device_has_not_names_none(written):
    assert devices.resolve(written) is None


def test_peaks_are_dense():
    assert devices.get("a100-sxm-80gb").peak("bf16") == 312e12
    assert devices.get("h100-sxm").peak("fp8") == pytest.approx(1979e12, rel=1e-3)
    assert devices.get("mi250x-gcd").peak("bf16") == pytest.approx(383e12 / 2, rel=1e-3)


def test_memory_is_what_software_sees():
    label_gb = {"a100-sxm-80gb": 80, "h200-sxm": 141, "b200": 180, "mi300x": 192, "v100-32gb": 32}
    for name, label in label_gb.items():
        gib = devices.get(name).memory_bytes / 2**30
        assert 0.91 * label < gib <= label


def test_unknown_format_names_those_it_has():
    with pytest.raises(InputError, match="a100-sxm-80gb has no 'fp8'; it has fp32, tf32, fp16, bf16, int8"):
        devices.get("a100-sxm-80gb").peak("fp8")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory_bandwidth": -1.0}, "memory_bandwidth: must be above 0, found -1"),
        ({"memory_bytes": float("nan")}, "memory_bytes: must be a finite number"),
        ({"peak_flops": {}}, "peak_flops: .*at least 1 item"),
        ({"peak_flops": {"bf61": 1e12}}, "bf16"),
        ({"tdp_watts": "700"}, "tdp_watts: must be a number"),
        ({"memory_bandwith": 1e12}, "unknown key 'memory_bandwith'; did you mean 'memory_bandwidth'"),
    ],
)
def test_wrong_figures_are_refused(changed, message):
    with pytest.raises(InputError, match=message):
        devices.get(definition(**changed), "mine.yaml")
