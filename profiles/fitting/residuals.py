"""Residuals of a form at measured points, interpolated on a regular grid by local kriging.

Around each node the nearest points (by covariance) are combined with the weights that a Gaussian process
with exponential covariances gives; far from all points the correction fades to none. Kriging: Cressie,
Statistics for Spatial Data, ch. 3; exponential covariances because residuals jump where a library changes
its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.residual import LARGEST, ResidualGrid

Array = NDArray[np.floating]

NEIGHBOURS = 80
CANDIDATES = 5000
"""Points among which the neighbours of a chunk of nodes are sought."""
MOST_NODES = 120_000
EXCHANGED_FROM = 128.0
NODES_A_POINT = 60
CHUNK = 512


@dataclass(frozen=True)
class Covariance:
    """One exponential covariance: its share of the variance, and the length along every direction.

    `directions` has one row per direction; most are the coordinate axes, but the number of output tiles, for
    one, follows the sum of the logs of m and n.
    """

    share: float
    directions: tuple[tuple[float, ...], ...]
    lengths: tuple[float, ...]


def axis_covariance(share: float, *lengths: float) -> Covariance:
    """Return a covariance with these lengths along the coordinate axes."""
    return Covariance(share, tuple(tuple(row) for row in np.eye(len(lengths))), lengths)


@dataclass(frozen=True)
class Smoother:
    """Correlation of an operation's residuals in log shape.

    Attributes:
        covariances: parts that add up.
        noise: uncorrelated share of the variance.
        exchanges: two interchangeable coordinates (rows and columns of a product), as long as both
            are at least `EXCHANGED_FROM`.
    """

    covariances: tuple[Covariance, ...]
    noise: float = 0.03
    exchanges: tuple[int, int] | None = None


def residual_grid(
    coordinates: Sequence[Array], ratios: Array, smoother: Smoother, most_nodes: int = MOST_NODES
) -> ResidualGrid:
    """Return the correction grid of measured points.

    Args:
        coordinates: one positive array per coordinate.
        ratios: measured over predicted time.
        smoother: covariances over the base-2 logs of the coordinates.
        most_nodes: of the grid.
    """
    points, logs = _places(coordinates), _logs(ratios)
    axes = _axes(points, most_nodes)
    nodes = np.array(list(product(*axes)))
    return ResidualGrid(
        axes, _interpolate(points, logs, nodes, smoother).reshape([len(axis) for axis in axes])
    )


def best_smoother(
    coordinates: Sequence[Array], ratios: Array, smoothers: Sequence[Smoother], out: NDArray[np.bool_]
) -> Smoother | None:
    """Return the smoother that best predicts the points marked `out` from the others, or None if none helps.

    At most a thousand held-out points are used, evenly spaced.
    """
    points, logs = _places(coordinates), _logs(ratios)
    unseen = np.flatnonzero(out)
    unseen = unseen[:: max(1, len(unseen) // 1000)]
    if not len(unseen) or out.all():
        return None
    best, best_score = None, _score(logs[unseen])
    for smoother in smoothers:
        corrections = _interpolate(points[~out], logs[~out], points[unseen], smoother)
        score = _score(logs[unseen] - corrections)
        if score < best_score:
            best, best_score = smoother, score
    return best


def _score(wrong: Array) -> float:
    return float(np.median(np.abs(wrong)) + np.quantile(np.abs(wrong), 0.9) / 3.0)


def _places(coordinates: Sequence[Array]) -> Array:
    return np.log2(np.stack([np.asarray(c, dtype=np.float64) for c in coordinates], axis=1))


def _logs(ratios: Array) -> Array:
    return np.clip(np.log(ratios), -LARGEST, LARGEST)


def _interpolate(points: Array, logs: Array, nodes: Array, smoother: Smoother) -> Array:
    points, logs = _merged(points, logs)
    if smoother.exchanges:
        points, logs = _with_exchanged(points, logs, *smoother.exchanges, np.log2(EXCHANGED_FROM))
    return _krige(points, logs, nodes, smoother)


def _merged(points: Array, logs: Array) -> tuple[Array, Array]:
    """Return the points with duplicates merged at their median."""
    unique, inverse = np.unique(np.round(points, 6), axis=0, return_inverse=True)
    if len(unique) == len(points):
        return points, logs
    order = np.argsort(inverse.ravel(), kind="stable")
    bounds = np.searchsorted(inverse.ravel()[order], np.arange(1, len(unique)))
    return unique, np.array([np.median(part) for part in np.split(logs[order], bounds)])


def _with_exchanged(points: Array, logs: Array, axis: int, other: int, least: float) -> tuple[Array, Array]:
    """Return the points with their mirror images, where no point lies already."""
    rows = (points[:, [axis, other]].min(axis=1) >= least) & (points[:, axis] != points[:, other])
    images = points[rows].copy()
    images[:, [axis, other]] = images[:, [other, axis]]
    taken = {tuple(row) for row in np.round(points, 6)}
    new = np.array([tuple(row) not in taken for row in np.round(images, 6)], dtype=bool)
    return np.concatenate([points, images[new]]), np.concatenate([logs, logs[rows][new]])


def _axes(points: Array, most_nodes: int) -> tuple[Array, ...]:
    """Return the places of the points along each coordinate, thinned until the grid is small enough."""
    axes = [np.unique(column) for column in points.T]
    node_limit = min(most_nodes, NODES_A_POINT * len(points))
    while np.prod([len(axis) for axis in axes]) > node_limit:
        longest = max(range(len(axes)), key=lambda i: len(axes[i]))
        axis = axes[longest]
        gaps = np.diff(axis)
        # Of the two nearest neighbours remove the upper one, unless it is the end.
        drop = int(np.argmin(gaps)) + 1
        axes[longest] = np.delete(axis, drop if drop < len(axis) - 1 else drop - 1)
    return tuple(axes)


def _krige(points: Array, logs: Array, nodes: Array, smoother: Smoother) -> Array:
    total = np.empty(len(nodes))
    for start in range(0, len(nodes), CHUNK):
        chunk = nodes[start : start + CHUNK]
        around = _around(points, chunk, smoother)
        local, own_logs = points[around], logs[around]
        neighbours = min(NEIGHBOURS, len(local))
        covariance = _covariance(chunk[:, None, :], local[None, :, :], smoother)
        nearest = np.argpartition(-covariance, neighbours - 1, axis=1)[:, :neighbours]
        among = _covariance(local[nearest][:, :, None, :], local[nearest][:, None, :, :], smoother)
        among += smoother.noise * np.eye(neighbours, dtype=among.dtype)
        towards = np.take_along_axis(covariance, nearest, axis=1)
        weights = np.linalg.solve(among.astype(np.float64), towards.astype(np.float64)[..., None])[..., 0]
        total[start : start + CHUNK] = (weights * own_logs[nearest]).sum(axis=1)
    return total


def _around(points: Array, chunk: Array, smoother: Smoother) -> NDArray[np.intp]:
    """Return the points that lie nearest to the box around a chunk of nodes: others cannot be neighbours."""
    if len(points) <= CANDIDATES:
        return np.arange(len(points))
    total = np.zeros(len(points), dtype=np.float32)
    for part in smoother.covariances:
        here, there = _features(chunk, part), _features(points, part)
        outside = np.maximum(here.min(axis=0) - there, there - here.max(axis=0))
        total += np.float32(part.share) * np.exp(-np.maximum(outside, 0.0).sum(axis=1))
    return np.argpartition(-total, CANDIDATES)[:CANDIDATES]


def _features(places: Array, part: Covariance) -> Array:
    """Return the places along the part's directions, in its lengths."""
    scale = np.array(part.directions, dtype=np.float32).T / np.array(part.lengths, dtype=np.float32)
    return places.astype(np.float32) @ scale


def _covariance(a: Array, b: Array, smoother: Smoother) -> Array:
    total = np.float32(0.0)
    for part in smoother.covariances:
        # Scaled in advance, so that the large array is read once per direction.
        left, right = _features(a, part), _features(b, part)
        distance = np.abs(left[..., 0] - right[..., 0])
        for direction in range(1, left.shape[-1]):
            distance += np.abs(left[..., direction] - right[..., direction])
        total = total + np.float32(part.share) * np.exp(-distance)
    return np.asarray(total)
