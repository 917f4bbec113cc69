"""Predicted against measured kernel times, for any folder of point files.

The product's kernel model predicts every point, with the constants of the point's library where the
calibration has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from core.errors import MeshwrightError
from hwmodels.cluster import Cluster
from hwmodels.kernels import KernelModel
from hwmodels.kernels.model import Layout
from profiles.collective_validation import validate_collectives
from profiles.fitting.holdout import errors, stated
from profiles.fitting.operations.experts import experts
from profiles.fitting.operations.memory_bound import kind_of
from profiles.fitting.select import groups, read_points
from profiles.importers.physics import device_of
from profiles.points import Points

Array = NDArray[np.floating]


@dataclass
class KernelValidation:
    """Result of a validation.

    Attributes:
        rows: one per operation, GPU and dtype; see `validate_kernels`.
        skipped: groups of points that could not be predicted, with the reason.
        dropped: impossible points (faster than the device's peak or memory).
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0


def validate_kernels(directory: Path, cluster: Cluster | None = None) -> KernelValidation:
    """Predict every point of a folder and state the errors.

    A row has ``operation``, ``gpu``, ``dtype``, ``points``, and the relative errors ``median_error``,
    ``p90_error``, ``large_median_error``, ``large_p90_error``, ``small_median_error``, ``small_p90_error``
    (large: longer than 50 us; null where there are none) of the whole model, the same under
    ``form_alone`` without the correction by measured points, and the same for each library under
    ``libraries``. Collectives are operations too: their ``gpu`` is the ``system`` column, and no points
    correct them.

    Args:
        directory: folder of point files.
        cluster: the cluster of measured collectives; overrides their ``system``.

    Raises:
        InputError: no such folder, no point files in it, or a file that is wrong.
    """
    tables, dropped = read_points([directory])
    validation = KernelValidation(dropped=dropped)
    for table, parts in tables.items():
        for points in parts:
            if table == "collectives":
                rows, skipped = validate_collectives(points, cluster)
                validation.rows += rows
                validation.skipped += skipped
                continue
            for gpu in np.unique(points["gpu"].astype(str)):
                _gpu(validation, str(gpu), points.where(points["gpu"].astype(str) == gpu))
    validation.rows.sort(key=lambda row: (row["operation"], row["gpu"], row["dtype"]))
    return validation


def _gpu(validation: KernelValidation, gpu: str, points: Points) -> None:
    device = device_of(gpu)
    if device is None:
        reason = "no such device in the catalogue"
        validation.skipped.append(
            {"table": points.table.name, "gpu": gpu, "points": len(points), "reason": reason}
        )
        return
    collected: dict[tuple[str, str], list[tuple[str, Array, Array, Array]]] = {}
    for dtype, library, part in groups(points):
        kernels = device.kernels.using(library)
        for operation, subset in _operations(part):
            try:
                corrected, form = (
                    predict(kernels, operation, subset),
                    predict(kernels.uncorrected(), operation, subset),
                )
            except MeshwrightError as error:
                row = {"table": part.table.name, "gpu": gpu, "dtype": dtype, "points": len(subset)}
                validation.skipped.append(row | {"reason": str(error)})
                continue
            measured = subset["time_us"] * 1e-6
            collected.setdefault((operation, dtype), []).append((library, measured, corrected, form))
    for (operation, dtype), parts in collected.items():
        validation.rows.append(_row(operation, gpu, dtype, parts))


def _operations(points: Points) -> list[tuple[str, Points]]:
    """Return the points by operation: a table may hold several."""
    if points.table.name == "elementwise":
        kinds = kind_of(points)
        return [(str(kind), points.where(kinds == kind)) for kind in np.unique(kinds) if kind]
    name = {"moe": "grouped_gemm", "attention_prefill": "attention"}.get(points.table.name, points.table.name)
    if "direction" not in points.columns:
        return [(name, points)]
    directions = points["direction"].astype(str)
    return [
        (name if direction == "forward" else f"{name}_backward", points.where(directions == direction))
        for direction in np.unique(directions)
    ]


def predict(kernels: KernelModel, operation: str, points: Points) -> Array:
    """Return seconds of points of one operation and dtype.

    Raises:
        MeshwrightError: the operation has no prediction, or the device lacks the dtype.
    """
    by_table: dict[str, Callable[[KernelModel, Points], Array]] = {
        "gemm": _gemm,
        "attention_prefill": _attention,
        "attention_decode": _decode,
        "moe": _experts,
    }
    if points.table.name == "elementwise":
        moved_bytes = points["tokens"].astype(float) * points["bytes_per_token"]
        return kernels.memory_bound(moved_bytes, operation)
    if operation == "grouped_gemm_backward":
        raise MeshwrightError(
            "the backward pass of a mixture-of-experts layer is predicted from its products"
        )
    return by_table[points.table.name](kernels, points)


def _gemm(kernels: KernelModel, points: Points) -> Array:
    seconds = np.empty(len(points))
    layouts = points["layout"].astype(str)
    for layout in np.unique(layouts):
        rows = np.flatnonzero(layouts == layout)
        m, n, k = (points[side][rows] for side in "mnk")
        seconds[rows] = kernels.gemm(m, n, k, _dtype(points), layout=cast(Layout, layout), quantises=True)
    return seconds


def _attention(kernels: KernelModel, points: Points) -> Array:
    columns = ("batch", "seq_q", "seq_kv", "n_heads", "n_kv_heads", "head_dim")
    batch, seq_q, seq_kv, heads, kv_heads, head_dim = (points[name] for name in columns)
    dtype, kv_dtype = _cache(points)
    backward = points["direction"][0] == "backward"
    return kernels.attention(
        batch,
        seq_q,
        seq_kv,
        heads,
        kv_heads,
        head_dim,
        dtype=dtype,
        direction="backward" if backward else "forward",
        appends=not backward,
        kv_dtype=kv_dtype,
    )


def _decode(kernels: KernelModel, points: Points) -> Array:
    shape = [points[name] for name in ("batch", "seq_kv", "n_heads", "n_kv_heads", "head_dim")]
    dtype, kv_dtype = _cache(points)
    return kernels.attention_decode(*shape, dtype=dtype, kv_dtype=kv_dtype, cache_in_l2=True)


def _experts(kernels: KernelModel, points: Points) -> Array:
    return kernels.expert_layer_of(lambda busiest_exponent: experts(points, busiest_exponent), _dtype(points))


def _dtype(points: Points) -> str:
    return str(points["dtype"][0])


def _cache(points: Points) -> tuple[str, str | None]:
    dtype, _, kv_dtype = _dtype(points).partition("_kv")
    return dtype, kv_dtype or None


def _row(
    operation: str, gpu: str, dtype: str, parts: list[tuple[str, Array, Array, Array]]
) -> dict[str, Any]:
    _, measured, corrected, form = (
        np.concatenate([np.atleast_1d(part[i]) for part in parts]) for i in range(4)
    )
    libraries = [
        {"library": library or "default", "points": len(times), **stated(errors(with_points, times))}
        for library, times, with_points, _ in parts
    ]
    return {
        "operation": operation,
        "gpu": gpu,
        "dtype": dtype,
        "points": len(measured),
        **stated(errors(corrected, measured)),
        "form_alone": stated(errors(form, measured)),
        "libraries": libraries,
    }
