"""Finding devices, and saying what is wrong with what the user asked for."""

import pytest

from hwmodels.device import devices
from hwmodels.errors import InputError
from profiles.measure.machine import CATALOGUE_NAMES, catalogue_name, find

torch = pytest.importorskip("torch")


def test_this_cpu():
    machine = find("cpu")
    assert (machine.kind, machine.name, machine.torch_device) == ("cpu", "cpu", "cpu")
    assert machine.multiprocessors >= 1
    assert machine.memory_bytes > machine.cache_bytes > 0
    assert machine.versions["torch"] == str(torch.__version__)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "tpu:0", ""])
def test_no_such_device(device):
    with pytest.raises(InputError, match=r"no such device .*; allowed: cpu, cuda, cuda:N"):
        find(device)


def test_no_cuda_or_too_few():
    with pytest.raises(InputError, match=r"no CUDA here|no device cuda:99"):
        find("cuda:99")


def test_a_dtype_that_the_device_lacks():
    with pytest.raises(InputError, match=r"has no fp8; it has fp32, bf16"):
        find("cpu").checked_dtypes(("bf16", "fp8"))


def test_default_dtypes():
    assert find("cpu").checked_dtypes(()) == ("fp32",)
    assert find("cpu").checked_dtypes(("bf16", "bf16")) == ("bf16",)


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA GeForce GTX 1080 Ti", "nvidia-geforce-gtx-1080-ti"),
    ],
)
def test_names_of_drivers(driver, name):
    assert catalogue_name(driver) == name


def test_all_names_are_in_the_catalogue():
    assert {name for _, name in CATALOGUE_NAMES} <= set(devices.names())
