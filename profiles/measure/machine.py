"""The machine under measurement: device, capabilities and software versions."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from core.errors import InputError

if TYPE_CHECKING:
    from torch._C import _CudaDeviceProperties

CATALOGUE_NAMES = (
    (r"GB300", "gb300"),
    (r"GB200", "gb200"),
    (r"B300", "b300"),
    (r"B200", "b200"),
    (r"H200(?! NVL)", "h200-sxm"),
    (r"H100.*PCIe", "h100-pcie"),
    (r"H100.*96GB", "h100-96gb"),
    (r"H100(?! NVL)", "h100-sxm"),
    (r"A100.*PCI[eE].*40GB", "a100-pcie-40gb"),
    (r"A100.*PCI[eE]", "a100-pcie-80gb"),
    (r"A100.*64GB", "a100-sxm-64gb"),
    (r"A100.*40GB", "a100-sxm-40gb"),
    (r"A100", "a100-sxm-80gb"),
    (r"V100.*32GB", "v100-32gb"),
    (r"V100", "v100-16gb"),
    (r"P100", "p100-16gb"),
    (r"L40S", "l40s"),
    (r"L4\b", "l4"),
    (r"A10G", "a10g"),
    (r"T4\b", "t4"),
    (r"RTX 4090(?! D| Laptop)", "rtx-4090"),
    (r"RTX A6000", "a6000"),
    (r"MI250X", "mi250x-gcd"),
    (r"MI300X", "mi300x"),
    (r"MI325X", "mi325x"),
    (r"MI355X", "mi355x"),
)
"""What a driver calls a device, as a pattern that no capital precedes, and the catalogue's name for it; first
match wins."""

CACHE_LIMIT_BYTES = 64 * 2**20
"""A server CPU's caches are spread over dies; one process does not see them all."""

INFINITY_CACHE_BYTES = {"gfx942": 256 * 2**20, "gfx950": 256 * 2**20}
"""AMD's last level behind the L2 that torch tells of, by architecture (CDNA 3 and CDNA 4 white papers)."""

OLDEST_TORCH = (2, 6)
"""Attention with grouped queries came with 2.5, the public ``fully_shard`` with 2.6."""
GET_TORCH = f"install it with: pip install 'torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}'"


@dataclass(frozen=True)
class Machine:
    """A device as torch finds it here.

    Attributes:
        kind: "cpu" or "cuda" (ROCm too).
        index: CUDA index; 0 for a CPU.
        name: the catalogue's name, for the ``gpu`` column.
        full_name: name of the driver or the kernel.
        dtypes: dtypes that can be measured on it.
        multiprocessors: SMs, compute units, or the cores torch uses.
        cache_bytes: last-level cache.
        memory_bytes: total memory.
        versions: torch, driver and library versions.
    """

    kind: str
    index: int
    name: str
    full_name: str
    dtypes: tuple[str, ...]
    multiprocessors: int
    cache_bytes: int
    memory_bytes: int
    versions: dict[str, str]

    @property
    def torch_device(self) -> str:
        """The name by which torch knows the device."""
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"

    def default_dtypes(self) -> tuple[str, ...]:
        """Default dtypes to measure: those of training on the device."""
        if self.kind == "cpu":
            return ("fp32",)
        main = "bf16" if "bf16" in self.dtypes else "fp16"
        return (main, "fp8") if "fp8" in self.dtypes else (main,)

    def checked_dtypes(self, dtypes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the dtypes to measure.

        Raises:
            InputError: one that the device cannot compute in; the message says which it can.
        """
        for dtype in dtypes:
            if dtype not in self.dtypes:
                has = ", ".join(self.dtypes)
                raise InputError(f"{self.full_name} has no {dtype}; it has {has}", "--dtypes")
        return tuple(dict.fromkeys(dtypes)) or self.default_dtypes()


def require_torch() -> ModuleType:
    """Import torch.

    Raises:
        InputError: torch is not installed or too old; the message says how to get it.
    """
    try:
        import torch
    except ImportError:
        raise InputError(f"measuring needs torch, which is not installed; {GET_TORCH}") from None
    if tuple(int(part) for part in re.findall(r"\d+", str(torch.__version__))[:2]) < OLDEST_TORCH:
        raise InputError(f"torch {torch.__version__} is too old to measure with; {GET_TORCH}")
    return torch


def find(device: str, name: str = "") -> Machine:
    """Describe a device of this machine.

    Args:
        device: "cpu", "cuda" or "cuda:N".
        name: what to call it; empty means the catalogue's name.

    Raises:
        InputError: not of that form, no CUDA here, or fewer devices than the index asks for.
    """
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
    if not match:
        raise InputError(f"no such device {device!r}; allowed: cpu, cuda, cuda:N", "--device")
    torch = require_torch()
    if device == "cpu":
        return _cpu(torch, name)
    if not torch.cuda.is_available():
        built = (
            "is built without CUDA"
            if torch.version.cuda is None and torch.version.hip is None
            else "finds no GPU"
        )
        raise InputError(f"no CUDA here: torch {torch.__version__} {built}; --device cpu works", "--device")
    index, count = int(match[1] or 0), torch.cuda.device_count()
    if index >= count:
        raise InputError(f"no device cuda:{index}; this machine has cuda:0 to cuda:{count - 1}", "--device")
    return _gpu(torch, index, name)


def catalogue_name(full_name: str) -> str:
    """The catalogue's name of a device from what its driver calls it, or a plain form of that."""
    for pattern, name in CATALOGUE_NAMES:
        if re.search(rf"(?<![A-Z]){pattern}", full_name):
            return name
    return re.sub(r"[^a-z0-9]+", "-", full_name.lower()).strip("-")


def _cpu(torch: ModuleType, name: str) -> Machine:
    return Machine(
        kind="cpu",
        index=0,
        name=name or "cpu",
        full_name=_cpu_model(),
        dtypes=("fp32", "bf16"),
        multiprocessors=torch.get_num_threads(),
        cache_bytes=min(_cpu_cache_bytes(), CACHE_LIMIT_BYTES),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        versions=_versions(torch),
    )


def _gpu(torch: ModuleType, index: int, name: str) -> Machine:
    properties = torch.cuda.get_device_properties(index)
    return Machine(
        kind="cuda",
        index=index,
        name=name or catalogue_name(properties.name),
        full_name=properties.name,
        dtypes=_gpu_dtypes(torch, properties),
        multiprocessors=properties.multi_processor_count,
        cache_bytes=_gpu_cache_bytes(torch, properties),
        memory_bytes=properties.total_memory,
        versions=_versions(torch) | _gpu_versions(torch, index),
    )


def _gpu_cache_bytes(torch: ModuleType, properties: _CudaDeviceProperties) -> int:
    behind = INFINITY_CACHE_BYTES.get(_architecture(properties), 0) if torch.version.hip else 0
    return behind or properties.L2_cache_size or 2**25


def _architecture(properties: _CudaDeviceProperties) -> str:
    """AMD's name of the architecture, e.g. "gfx942", without its features."""
    return properties.gcnArchName.split(":")[0]


def _gpu_dtypes(torch: ModuleType, properties: _CudaDeviceProperties) -> tuple[str, ...]:
    if torch.version.hip is not None:
        fp8 = ("fp8",) if _architecture(properties) in ("gfx942", "gfx950") else ()
        return ("fp32", "fp16", "bf16", *fp8)
    capability = (properties.major, properties.minor)
    dtypes = ["fp32"]
    if capability >= (8, 0):
        dtypes.append("tf32")
    dtypes.append("fp16")
    if capability >= (8, 0):
        dtypes.append("bf16")
    if capability >= (8, 9):
        dtypes.append("fp8")
    return tuple(dtypes)


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def _cpu_cache_bytes() -> int:
    sizes = [2**23]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KM])", path.read_text().strip())
        if match:
            sizes.append(int(match[1]) * (2**10 if match[2] == "K" else 2**20))
    return max(sizes)


def _versions(torch: ModuleType) -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "torch": str(torch.__version__),
    }


def _gpu_versions(torch: ModuleType, index: int) -> dict[str, str]:
    from importlib import metadata

    versions = {}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    if torch.version.hip:
        versions["hip"] = torch.version.hip
    if torch.backends.cudnn.is_available():
        versions["cudnn"] = str(torch.backends.cudnn.version())
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    for package in ("nvidia-cublas-cu12", "nvidia-cublas", "flash-attn", "flashinfer-python", "triton"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    driver = _nvidia_smi(torch, index, ["driver_version"])
    if driver:
        versions["driver"] = driver[0]
    return versions


CLOCK_FIELDS = {
    "sm_clock": "clocks.sm",
    "memory_clock": "clocks.mem",
    "power": "power.draw",
    "temperature_c": "temperature.gpu",
}
THROTTLE_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""What nvidia-smi calls it since driver 535, and before; it refuses names that it does not know."""


def clocks(machine: Machine) -> dict[str, str]:
    """Current clock, power, temperature and throttle reasons; empty without a tool that reads them."""
    if machine.kind == "cuda":
        return _gpu_clocks(require_torch(), machine.index)
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    speeds = [float(speed) for speed in re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", text, re.MULTILINE)]
    return {"core_clock": f"{max(speeds):.0f} MHz"} if speeds else {}


def _gpu_clocks(torch: ModuleType, index: int) -> dict[str, str]:
    fields = dict(zip(CLOCK_FIELDS, _nvidia_smi(torch, index, CLOCK_FIELDS.values()), strict=False))
    for field in THROTTLE_FIELDS if fields else ():
        answer = _nvidia_smi(torch, index, [field])
        if answer:
            return fields | {"throttle_reasons": answer[0]}
    return fields


def _nvidia_smi(torch: ModuleType, index: int, fields: Iterable[str]) -> list[str]:
    """Fields of nvidia-smi for a device; empty where it is missing (ROCm) or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = f"--query-gpu={','.join(fields)}"
    command = [tool, query, "--format=csv,noheader", f"--id={_identity(torch, index)}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (subprocess.SubprocessError, OSError):
        return []
    return [field.strip() for field in answer.stdout.strip().split(",") if field.strip()]


def _identity(torch: ModuleType, index: int) -> str:
    """Identifier of a torch device for nvidia-smi; torch may renumber devices and see only some."""
    unique = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{unique}" if unique else str(index)
