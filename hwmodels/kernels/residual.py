"""Residuals of a form on a grid: the log of measured over predicted time, interpolated in log shape.

A calibration may have one grid per operation and dtype, all in one ``.npz`` file. `profiles.fitting` makes
the grids from measured points; this module reads and interpolates them.
"""

from __future__ import annotations

import zipfile
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.errors import InputError
from core.files import atomic_write

Array = NDArray[np.floating]

FINEST = 0.01
LARGEST = 3.0
"""Maximum absolute log of a correction: a factor of twenty."""


class ResidualGrid:
    """A correction on a regular grid over the base-2 logs of an operation's coordinates.

    Args:
        axes: increasing base-2 logs, one array per coordinate.
        logs: log(measured / predicted) at the grid's nodes.
    """

    def __init__(self, axes: tuple[Array, ...], logs: Array) -> None:
        self.axes = tuple(np.asarray(axis, dtype=np.float64) for axis in axes)
        self.logs = np.asarray(logs, dtype=np.float32)

    def factor(self, *coordinates: ArrayLike) -> Array:
        """Return measured over predicted time at broadcast coordinates, clamped to the grid's edge."""
        arrays = [np.asarray(c, dtype=np.float64) for c in coordinates]
        shape, logs = np.broadcast_shapes(*(values.shape for values in arrays)), self.logs
        varying: list[tuple[NDArray[np.intp], NDArray[np.intp], Array]] = []
        for axis, values in zip(self.axes, arrays, strict=True):
            constant = values.size > 0 and bool((values == values.flat[0]).all())
            lower, share = _place(axis, values.flat[0] if constant else values)
            upper = np.minimum(lower + 1, len(axis) - 1)
            if constant:
                # A coordinate common to all points slices the grid once, which halves the corners.
                at = len(varying)
                logs = (1.0 - share) * logs.take(lower, at) + share * logs.take(upper, at)
            else:
                varying.append((lower, upper, share))
        total = np.zeros(shape)
        for corner in product((0, 1), repeat=len(varying)):
            weight: Array | float = 1.0
            for up, (_, _, share) in zip(corner, varying, strict=True):
                weight = weight * (share if up else 1.0 - share)
            index = tuple(
                upper if up else lower for up, (lower, upper, _) in zip(corner, varying, strict=True)
            )
            total += weight * logs[index]
        return np.exp(total)


def _place(axis: Array, values: ArrayLike) -> tuple[NDArray[np.intp], Array]:
    """Return the node at or below each value, and the fraction towards the next node (0 to 1)."""
    place = np.interp(np.log2(values), axis, np.arange(len(axis), dtype=np.float64))
    lower = place.astype(np.intp)
    return lower, place - lower


def save_grids(path: Path, grids: dict[str, ResidualGrid]) -> None:
    """Write grids by name into one file, atomically."""
    arrays: dict[str, Any] = {}
    for name, grid in grids.items():
        for number, axis in enumerate(grid.axes):
            arrays[f"{name}/axis{number}"] = axis.astype(np.float32)
        # One byte per node, in steps of 1 %, or larger steps where the largest correction needs them.
        step = max(float(np.abs(grid.logs).max(initial=0.0)) / 127.0, FINEST)
        arrays[f"{name}/steps"] = np.rint(grid.logs / step).astype(np.int8)
        arrays[f"{name}/step"] = np.float32(step)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def grids_of(path: Path) -> dict[str, ResidualGrid]:
    """The grids of a file by name, read once per version of the file.

    Raises:
        InputError: as `load_grids`.
    """
    return _grids_at(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=64)
def _grids_at(path: Path, changed_ns: int) -> dict[str, ResidualGrid]:
    return load_grids(path)


def load_grids(path: Path) -> dict[str, ResidualGrid]:
    """Read the grids of a file by name.

    Raises:
        InputError: the file is missing or is not one that `save_grids` wrote.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        raise InputError("no such file (the calibration names it as its residuals)", str(path)) from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"is not a residual grid (.npz) of a calibration ({error})", str(path)) from None
    grids = {}
    for name in [key.removesuffix("/steps") for key in arrays if key.endswith("/steps")]:
        steps = arrays[f"{name}/steps"]
        axes = tuple(arrays.get(f"{name}/axis{number}", np.empty(0)) for number in range(steps.ndim))
        step = arrays.get(f"{name}/step")
        if step is None or steps.dtype != np.int8 or tuple(len(axis) for axis in axes) != steps.shape:
            raise InputError(f"the axes of {name!r} do not fit its values", str(path))
        grids[name] = ResidualGrid(axes, np.clip(steps * np.float32(step), -LARGEST, LARGEST))
    return grids
