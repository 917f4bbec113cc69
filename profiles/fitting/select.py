"""Which measured points belong together: one operation, one dtype, one library's kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from profiles import points as point_files
from profiles.importers.physics import impossible
from profiles.points import Points

# Serving stacks whose kernels differ; a version behind the name does not make another library.
NAMED = ("trtllm", "vllm", "sglang", "vidur", "llmservingsim", "llmcompass", "flashinfer", "flash-attn")


def read_points(paths: list[Path]) -> tuple[dict[str, list[Points]], int]:
    """Read point files and folders of them; impossible points are dropped.

    Returns:
        The points by table, a list a table with one element a file; and how many were dropped.

    Raises:
        InputError: a path that does not exist, a folder without point files, or a file that is wrong.
    """
    tables: dict[str, list[Points]] = {}
    dropped = 0
    for path in paths:
        if not path.exists():
            raise InputError("no such file or folder", str(path))
        files = list(point_files.files(path).values()) if path.is_dir() else [path]
        if not files:
            names = ", ".join(f"{name}.csv" for name in point_files.TABLES)
            raise InputError(f"holds no point files; they are called {names} (or .csv.gz)", str(path))
        for file in files:
            table = point_files.read(file)
            broken = impossible(table)
            dropped += int(broken.sum())
            tables.setdefault(table.table.name, []).append(table.where(~broken))
    return tables, dropped


def library_of(points: Points) -> NDArray[np.str_]:
    """Return whose kernels each point measured: the kernel column, else a name in the source, else empty."""
    sources = points["source"].astype(str)
    unique, inverse = np.unique(sources, return_inverse=True)
    named = np.array([_named(source) for source in unique], dtype=str)[inverse]
    if "kernel" not in points.columns:
        return named
    kernels = points["kernel"].astype(str)
    return np.where(kernels != "", kernels, named)


def _named(source: str) -> str:
    words = re.split(r"[^a-z_-]+", source.lower())
    return next((name for name in NAMED if any(word.strip("-").startswith(name) for word in words)), "")


def groups(points: Points) -> Iterator[tuple[str, str, Points]]:
    """Yield (dtype, library, points) for every pair that the points have."""
    libraries = library_of(points)
    dtypes = points["dtype"].astype(str)
    for dtype in np.unique(dtypes):
        for library in np.unique(libraries[dtypes == dtype]):
            yield str(dtype), str(library), points.where((dtypes == dtype) & (libraries == library))
