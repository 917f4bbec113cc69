"""Sizes of many ops side by side, and the distinct cases among them: a kernel is priced once for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

FEW_CASES = 32
"""Minimum number of cases for which equal cases are merged."""
MANY_CASES = 4096
"""The same of cases on several axes."""


def common_shape(rows: list[tuple[Any, ...]]) -> tuple[int, ...]:
    """Common shape of the sizes of ops."""
    shapes = {getattr(size, "shape", ()) for row in rows for size in row} - {()}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


def columns_of(rows: list[tuple[Any, ...]], shape: tuple[int, ...]) -> list[Array]:
    """Each size of many ops side by side, on the axes on which it varies: it broadcasts to (ops, *shape)."""
    columns = []
    for sizes in zip(*rows, strict=True):
        sizes_shape = np.broadcast_shapes(*(np.shape(size) for size in sizes))
        column = np.empty((len(rows), *(1,) * (len(shape) - len(sizes_shape)), *sizes_shape))
        for number, size in enumerate(sizes):
            column[number] = size
        columns.append(column)
    return columns


def distinct_sizes(columns: list[Array]) -> tuple[list[Array], NDArray[np.integer] | None]:
    """Distinct values of the one size that varies over several axes, as the rows of a chunk's context do.

    Args:
        columns: sizes as ``columns_of`` returns them.

    Returns:
        Sizes of shape (ops, distinct) or (ops, 1), and the index of every case's, shape (ops, cases); the
        sizes as they are and None where several vary, or few would be merged.
    """
    varied = [index for index, column in enumerate(columns) if column.size > len(column)]
    if len(varied) != 1 or columns[varied[0]].size < MANY_CASES:
        return columns, None
    column = columns[varied[0]]
    largest = int(column.max())
    if largest > column.size or np.any(column != np.floor(column)):
        return columns, None
    integers = column.astype(np.int64)
    present = np.zeros(largest + 1, bool)
    present[integers] = True
    distinct = np.flatnonzero(present).astype(np.float64)
    places = (np.cumsum(present) - 1)[integers].reshape(len(column), -1)
    sizes = [other.reshape(len(other), 1) for other in columns if other is not column]
    sizes.insert(varied[0], np.broadcast_to(distinct, (len(column), len(distinct))))
    return sizes, places


def stacked_sizes(rows: list[tuple[Any, ...]], shape: tuple[int, ...]) -> Array:
    """Sizes of many ops side by side, shape (sizes, ops, cases)."""
    sizes = np.empty((len(rows[0]), len(rows), *shape))
    for number, row in enumerate(rows):
        for column, size in enumerate(row):
            sizes[column, number] = size
    return sizes


def distinct_cases(sizes: Array) -> tuple[Array, NDArray[np.integer] | None]:
    """Distinct cases by size, and the index of every case's distinct one; None if no case is merged.

    Args:
        sizes: shape (sizes, ops, cases); few cases are returned unmerged.
    """
    if sizes.ndim != 3 or sizes.shape[-1] < FEW_CASES:
        return sizes, None
    words = sizes.reshape(-1, sizes.shape[-1]).view(np.uint64)
    mixed = np.zeros(words.shape[-1], dtype=np.uint64)
    for row in words:
        mixed = (mixed ^ (row >> np.uint64(29)) ^ row) * np.uint64(0x9E3779B97F4A7C15)
    _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
    distinct = np.take(sizes, first, axis=-1)
    # Different cases with equal hashes: merge nothing.
    same = np.array_equal(np.take(distinct, which, axis=-1), sizes)
    return (distinct, which) if same else (sizes, None)
