"""Errors of the kernel models on AIConfigurator's tables, on the half open to fits and the half kept apart.

    python -m benchmarks.kernel_tables PACKAGE... [--families decode ...] [--gpus gb300 ...] [--csv OUT]

PACKAGE is a folder of an unpacked wheel (``pip download aiconfigurator-core==0.12.0``; Mamba-2's scans are in
aiconfigurator 0.8.0). Shapes are split by a hash. A row is a device, a library, a family and a format: median
and 90th percentile of the error, and the median of the signed error (positive: predicted too slow), in %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from csv import DictWriter
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from core.errors import MeshwrightError
from evidence.command import command
from evidence.fits.system_tables import FAMILIES, GPUS, LATENT_DIM, ROPE_DIM, SystemTable, system_tables
from hwmodels.device import devices
from hwmodels.kernels import KernelModel
from profiles.kernel_validation import predict
from profiles.points import Points
from simulator.serving.engines import engines
from simulator.serving.steps.weight_only import (
    MXFP4_BYTES,
    WEIGHT_BYTES,
    WeightFormats,
    experts_kernel,
    widened_experts,
)

Array = np.ndarray
MOST_POINTS = 3000
"""Points of a table and half that are predicted: every so many."""
NARROW_EXPERTS = {"int4_w4a16": WEIGHT_BYTES["int4"], "mxfp4_w4a16": MXFP4_BYTES}
"""Bytes of a weight."""
COLUMNS = ("gpu", "library", "family", "dtype", "half", "points", "median", "p90", "bias")


def _rows(table: SystemTable) -> list[dict[str, Any]]:
    name = f"{table.gpu:20} {table.source:20} {table.family:18} {table.dtype:12}"
    lines, errors = [], []
    for half, selected in (("fit", table.fitted), ("apart", ~table.fitted)):
        every = np.flatnonzero(selected)
        points = table.points.where(every[:: max(1, -(-len(every) // MOST_POINTS))])
        if not len(points):
            errors.append(f"{'-':>22}")
            continue
        try:
            seconds = predicted(table, points)
        except MeshwrightError as error:
            print(f"{name} {error}")
            return []
        ratio = seconds / (points["time_us"] * 1e-6) - 1.0
        values = [
            100 * float(value)
            for value in (np.median(abs(ratio)), np.quantile(abs(ratio), 0.9), np.median(ratio))
        ]
        errors.append("{:6.1f} /{:6.1f} ({:+6.1f})".format(*values))
        row = [
            table.gpu,
            table.source,
            table.family,
            table.dtype,
            half,
            len(points),
            *(f"{v:.1f}" for v in values),
        ]
        lines.append(dict(zip(COLUMNS, row, strict=True)))
    print(f"{name} {len(table.points):7} {errors[0]} {errors[1]}", flush=True)
    return lines


def predicted(table: SystemTable, points: Points) -> Array:
    """Seconds of points of a table, with the constants of its library."""
    kernels = devices.get(table.gpu).kernels.using(table.library)
    operation = {
        "gemm": "gemm",
        "prefill": "attention",
        "decode": "attention_decode",
        "experts": "grouped_gemm",
    }
    if table.dtype in NARROW_EXPERTS and table.family == "experts" and not kernels.times_experts(table.dtype):
        return _narrow_experts(kernels, table.dtype, points)
    if table.family in operation:
        return predict(kernels, operation[table.family], points)
    family, _, rule = table.family.partition("/")
    return OTHERS[family](kernels, points, rule)


def _narrow_experts(kernels: KernelModel, dtype: str, points: Points) -> Array:
    """Experts whose weights are widened to 16 bits, as steps of engines are priced: without start-up."""
    sizes = [
        points[name].astype(np.float64) for name in ("tokens", "hidden", "inter", "topk", "n_experts", "tp")
    ]
    tokens, hidden, inter, topk, _, tensor = sizes
    skewed = points["dist"].astype(str) != "balanced"
    seconds: Any = kernels.expert_layer(*sizes, dtype="bf16", skewed=skewed)
    size = NARROW_EXPERTS[dtype]
    formats = WeightFormats("bf16", "bf16", size, size, True, True)
    kernel = experts_kernel(formats, kernels.device, engines.get("vllm-0.19"))
    flops = 6.0 * tokens * topk * hidden * inter / tensor
    return widened_experts(formats, kernels.device, seconds, flops, kernel)


def _scan(kernels: KernelModel, points: Points, rule: str) -> Array:
    names = ("batch", "sequence", "heads", "key_dim", "value_dim", "chunk", "key_heads", "delta")
    sizes: Any = (points[name] for name in names)
    return kernels.linear_attention(*sizes, rule=rule)


def _state_step(kernels: KernelModel, points: Points, rule: str) -> Array:
    sizes: Any = (points[name] for name in ("batch", "heads", "key_dim", "value_dim"))
    return kernels.linear_decode(*sizes, rule=rule, states_in_l2=True)


def _latent_decode(kernels: KernelModel, points: Points, _: str) -> Array:
    dtype, _, cache = str(points["dtype"][0]).partition("_kv")
    batch, keys, heads = (points[name] for name in ("batch", "seq_kv", "heads"))
    return kernels.mla_decode(batch, keys, heads, LATENT_DIM, ROPE_DIM, dtype=dtype, kv_dtype=cache or None)


def _latent_prefill(kernels: KernelModel, points: Points, _: str) -> Array:
    dtype, _, cache = str(points["dtype"][0]).partition("_kv")
    heads = points["heads"]
    return kernels.attention(
        points["batch"],
        points["sequence"],
        points["seq_kv"],
        heads,
        heads,
        192,
        v_head_dim=128,
        dtype=dtype,
        kv_dtype=cache or None,
        latent=True,
    )


OTHERS: dict[str, Callable[[KernelModel, Points, str], Array]] = {
    "scan": _scan,
    "state_step": _state_step,
    "latent_decode": _latent_decode,
    "latent_prefill": _latent_prefill,
}


@command
def main(
    packages: Sequence[Path],
    *,
    families: Annotated[Sequence[str], FAMILIES] = (),
    gpus: Annotated[Sequence[str], sorted(set(GPUS.values()))] = (),
    csv: Annotated[Path | None, "also write the rows to this file"] = None,
) -> None:
    """Print the table."""
    rows: list[dict[str, Any]] = []
    shape = f"{'gpu':20} {'library':20} {'family':18} {'dtype':12}"
    print(f"{shape} {'points':>7} {'fit half':>22} {'kept apart':>22}")
    for package in packages:
        for table in system_tables(package, tuple(families), tuple(gpus)):
            rows += _rows(table)
    if csv:
        with csv.open("w", newline="", encoding="utf-8") as file:
            names: list[str] = list(COLUMNS)
            writer = DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
