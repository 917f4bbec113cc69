"""A device outside the catalogue, described by its measured points."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.errors import InputError
from core.loading import build, read_mapping
from core.quantities import Count, Positive
from hwmodels.device import Device
from hwmodels.kernels.memory_bound import KINDS

NOT_KNOWN = 0.0
TORCH_ON_CPU: dict[str, Any] = {
    "gemm": {"bf16": {"rich": {"throttling": 0.0}}},
    "attention": {"bf16": {"form": {"throttling": 0.0, "rows": 64.0}}},
    "attention_backward": {"bf16": {"form": {"throttling": 0.0, "rows": 64.0}}},
}
"""Torch's CPU kernels run at one clock from the first microsecond on; attention takes 32, 64 or 256 rows at a
time (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp)."""

FRESH_PAGES_BYTES = 2 * 32 * 2**20
"""glibc asks the system for fresh pages at every allocation of 32 MiB and more (DEFAULT_MMAP_THRESHOLD_MAX);
a kernel with such a result reads about as much."""
IN_PLACE = ("optimizer", "copy")
"""Kinds that are measured without new results."""
FRESH_PAGES_GAIN = 5.0
"""Speed-up of memory-bound kernels below that size, as the start of a fit."""


class _Seen(BaseModel):
    """Device record of a profile run."""

    model_config = ConfigDict(frozen=True)

    name: str
    full_name: str
    kind: Literal["cpu", "cuda"]
    multiprocessors: Count
    last_level_cache_bytes: Positive
    memory_bytes: Positive


class _Best(BaseModel):
    """Highest rates of the points."""

    model_config = ConfigDict(frozen=True)

    flops: dict[str, Positive] = Field(default_factory=dict)
    memory_bandwidth: Positive | None = None


class _Provenance(BaseModel):
    device: _Seen
    observed: _Best


def observed_device(folder: Path) -> Device:
    """Return the CPU that a folder of points was measured on.

    Its peak is the best rate of its matrix products, its bandwidth that of its largest copy, its
    multiprocessors the threads that computed. Unmeasured figures (power, price) are zero; constants
    without points are estimates.

    Args:
        folder: point files with the ``provenance.yaml`` of their measurement.

    Raises:
        InputError: no provenance, one without matrix products or copies, or that of a GPU, whose architecture
            it does not say.
    """
    path = folder / "provenance.yaml"
    if folder.is_dir() and not path.is_file():
        raise InputError(
            f"holds no measured points; meshwright profile --device cpu -o {folder} writes them", str(folder)
        )
    seen = build(_Provenance, read_mapping(path), str(path))
    device, best = seen.device, seen.observed
    if device.kind != "cpu":
        raise InputError(f"{device.full_name} is in no catalogue; describe it in a device YAML", str(path))
    lacking = [name for name, rates in (("gemm", best.flops), ("copy", best.memory_bandwidth)) if not rates]
    if lacking:
        run = f"meshwright profile --device cpu --operations {','.join(lacking)} -o {folder}"
        raise InputError(
            f"no points of {' and '.join(lacking)} say what the CPU can do; run: {run}", str(path)
        )
    pages = {"l2_gain": FRESH_PAGES_GAIN, "l2_fraction": FRESH_PAGES_BYTES / device.last_level_cache_bytes}
    calibration = {"name": device.name, "based_on": "a100-sxm", "status": "estimated", "source": "no points"}
    return build(
        Device,
        {
            "name": device.name,
            "vendor": next((v for v in ("amd", "intel") if v in device.full_name.lower()), "other"),
            "generation": "cpu",
            "peak_flops": best.flops,
            "memory_bytes": device.memory_bytes,
            "memory_bandwidth": best.memory_bandwidth,
            "multiprocessors": device.multiprocessors,
            "l2_bytes": device.last_level_cache_bytes,
            "tdp_watts": 1.0,
            "idle_watts": NOT_KNOWN,
            "price_per_hour_usd": NOT_KNOWN,
            "calibration": calibration
            | TORCH_ON_CPU
            | {"memory_bound": {kind: {"form": pages} for kind in KINDS if kind not in IN_PLACE}},
            "sources": {"peak_flops": f"best of the points in {folder}, {device.full_name}"},
        },
        str(path),
    )
