"""What no kernel can beat: the device's peak, and its memory for what cannot lie in the cache.

A measurement faster than that is a broken one (an asynchronous call not waited for, a wrong unit) and
would pull a fit towards the impossible.
"""

from __future__ import annotations

import numpy as np

from hwmodels.device import Device, devices
from profiles.points import Points

TOLERANCE = 0.95
"""Peaks of data sheets are at the rated boost clock; short kernels may run a little above it."""

PEAKS = {
    "bf16_kvfp8": "bf16",
    "fp16_kvfp8": "fp16",
    "fp8_block": "fp8",
    "fp8_static": "fp8",
}
"""Dtypes of point files and the peak that bounds them; others bear their own name."""

ELEMENT_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "mxfp8": 1.0, "nvfp4": 0.5}


def device_of(name: str) -> Device | None:
    """The catalogue's device of a ``gpu`` column; "a100-sxm" means the fastest variant of it."""
    names = devices.names()
    if name in names:
        return devices.get(name)
    variants = [devices.get(other) for other in names if other.startswith(f"{name}-")]
    return max(variants, key=lambda device: device.memory_bandwidth, default=None)


def impossible(points: Points) -> np.ndarray:
    """Which points are faster than their device allows; those of unknown devices are believed.

    Returns:
        A boolean array, one element a point.
    """
    owner = "system" if "system" in points.columns else "gpu"
    too_fast = np.zeros(len(points), dtype=bool)
    for name in np.unique(points[owner]):
        device = device_of(str(name))
        if device is None:
            continue
        rows = np.flatnonzero(points[owner] == name)
        part = points.where(rows)
        with np.errstate(over="ignore"):  # a product of huge sizes is impossible as well
            flops, moved_bytes = WORK[points.table.name](part)
        bound = np.maximum(
            flops / _peaks(part, device),
            np.maximum(0.0, moved_bytes - device.l2_bytes) / device.memory_bandwidth,
        )
        too_fast[rows] = part["time_us"] * 1e-6 < TOLERANCE * bound
    return too_fast


def _peaks(points: Points, device: Device) -> np.ndarray:
    if "dtype" not in points.columns:
        return np.full(len(points), np.inf)
    peaks = device.peak_flops
    dtypes, index = np.unique(points["dtype"], return_inverse=True)
    return np.array([peaks.get(PEAKS.get(str(d), str(d)), np.inf) for d in dtypes])[index]  # type: ignore[call-overload]


def _element(points: Points) -> np.ndarray:
    dtypes, index = np.unique(points["dtype"], return_inverse=True)
    return np.array([ELEMENT_BYTES.get(PEAKS.get(str(d), str(d)), 0.0) for d in dtypes])[index]


MOST_BYTES = 2**62
"""A size of a message that counts as this where it is more."""
Work = tuple[np.ndarray, np.ndarray]
"""FLOP and bytes that a kernel cannot do without."""


def _gemm(points: Points) -> Work:
    m, n, k = (points[name].astype(float) for name in "mnk")
    return 2 * m * n * k, _element(points) * (m * k + n * k)


def _attention(points: Points) -> Work:
    batch, heads, kv_heads, head_dim = (
        points[name].astype(float) for name in ("batch", "n_heads", "n_kv_heads", "head_dim")
    )
    queries, keys = points["seq_q"].astype(float), points["seq_kv"].astype(float)
    seen = queries * (keys - queries) + queries * (queries + 1) / 2  # causal
    passes = np.where(points["direction"] == "backward", 2.0, 1.0) if "direction" in points.columns else 1.0
    cache = np.where(np.char.endswith(points["dtype"], "kvfp8"), 1.0, _element(points))
    moved_bytes = 2 * batch * kv_heads * keys * head_dim * cache
    return passes * 4 * batch * heads * seen * head_dim, moved_bytes


def _moe(points: Points) -> Work:
    """Two products an expert: some experts have no gate. Only even routing says how many tokens come."""
    copies = points["tokens"] * points["topk"] / points["ep"]
    products = 2.0 * points["hidden"] * points["inter"] / points["tp"]
    even = (points["dist"] == "balanced") & (copies >= 1)
    return np.where(even, 2 * copies * products, 0.0), np.zeros(len(points))


def _collective(points: Points) -> Work:
    """A rank reads what it sends at least once: (n - 1) / n of its buffer."""
    ranks = points["n_gpus"].astype(float)
    sizes = np.minimum(points["bytes"], MOST_BYTES).astype(float)
    return np.zeros(len(points)), sizes * (ranks - 1) / ranks


def _elementwise(points: Points) -> Work:
    """Copies to a host or a drive are bound by their link, which is not known here."""
    computes = ~np.char.startswith(points["op"], "copy_")
    return np.zeros(len(points)), np.where(computes, 1.0 * points["tokens"] * points["bytes_per_token"], 0.0)


WORK = {
    "gemm": _gemm,
    "attention_prefill": _attention,
    "attention_decode": _attention,
    "moe": _moe,
    "collectives": _collective,
    "elementwise": _elementwise,
}
