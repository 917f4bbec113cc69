"""Finding devices, and saying what is wrong with what the user asked for."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from core.errors import InputError
from hwmodels.device import devices
from profiles.measure import machine as machines
from profiles.measure.machine import CATALOGUE_NAMES, catalogue_name, clocks, find, require_torch

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
        ("NVIDIA H100 NVL", "nvidia-h100-nvl"),
        ("NVIDIA H200 NVL", "nvidia-h200-nvl"),
        ("NVIDIA GH200 480GB", "nvidia-gh200-480gb"),
        ("NVIDIA GeForce RTX 4090 D", "nvidia-geforce-rtx-4090-d"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "nvidia-geforce-rtx-4090-laptop-gpu"),
        ("NVIDIA GeForce GTX 1080 Ti", "nvidia-geforce-gtx-1080-ti"),
    ],
)
def test_names_of_drivers(driver, name):
    assert catalogue_name(driver) == name


def test_all_names_are_in_the_catalogue():
    assert {name for _, name in CATALOGUE_NAMES} <= set(devices.names())


def test_a_torch_that_is_too_old(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu124")
    with pytest.raises(InputError, match=r"torch 2.5.1\+cu124 is too old .*pip install 'torch>=2.6'"):
        require_torch()


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A driver's tool that refuses the names of some fields, as drivers do; answers with the machine."""
    gpu = replace(find("cpu"), kind="cuda", index=1)
    properties = SimpleNamespace(uuid="12ab")
    fake = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda index: properties))
    monkeypatch.setattr(machines, "require_torch", lambda: fake)

    def install(refused):
        tool = tmp_path / "nvidia-smi"
        tool.write_text(
            "#!/bin/sh\n"
            f'case "$1" in *{refused}*) echo "Field is not a valid field to query."; exit 2;; esac\n'
            '[ "$3" = "--id=GPU-12ab" ] || exit 6\n'
            'case "$1" in *clocks.sm*) echo "1980 MHz, 2619 MHz, 701.22 W, 64";; *) echo 0x4;; esac\n'
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return gpu

    return install


@pytest.mark.parametrize("refused", ["clocks_event_reasons", "clocks_throttle_reasons"])
def test_clocks_of_old_and_new_drivers(nvidia_smi, refused):
    assert clocks(nvidia_smi(refused)) == {
        "sm_clock": "1980 MHz",
        "memory_clock": "2619 MHz",
        "power": "701.22 W",
        "temperature_c": "64",
        "throttle_reasons": "0x4",
    }


def test_no_clocks_without_the_tool(nvidia_smi, monkeypatch):
    gpu = nvidia_smi("nothing")
    monkeypatch.setenv("PATH", "")
    assert clocks(gpu) == {}


@pytest.mark.parametrize(
    ("hip", "architecture", "cache"),
    [(None, "", 50 * 2**20), ("6.2", "gfx942:sramecc+:xnack-", 256 * 2**20), ("6.2", "gfx90a", 50 * 2**20)],
)
def test_the_last_level_cache(hip, architecture, cache):
    fake = SimpleNamespace(version=SimpleNamespace(hip=hip))
    properties = SimpleNamespace(gcnArchName=architecture, L2_cache_size=50 * 2**20)
    assert machines._gpu_cache_bytes(fake, properties) == cache
