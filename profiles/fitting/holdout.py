"""Shapes held out of a fit, and the error on them."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.calibration import ErrorOnUnseen

Array = NDArray[np.floating]

FEWEST_KEYS = 6
FEWEST_UNSEEN = 12
"""Minimum number of held-out points; with fewer, every point is held out once, in turn."""
LARGE_S = 50e-6
"""Kernels longer than this are large."""


def held_out(keys: NDArray[np.str_], share: float, salt: str = "meshwright") -> NDArray[np.bool_]:
    """Return the mask of held-out points: those with the lowest key hashes, the same on every machine.

    The key names what is unseen together (a weight's shape, the heads of an attention), so that no near
    copy of a held-out point is in the fit. Where there are only few keys, points are kept out one by one.
    """
    unique, inverse = np.unique(keys, return_inverse=True)
    if len(unique) < FEWEST_KEYS:
        unique, inverse = np.arange(len(keys)).astype(str), np.arange(len(keys))
    digests = [hashlib.md5(f"{salt}{key}".encode(), usedforsecurity=False).digest() for key in unique]
    order = sorted(range(len(unique)), key=lambda index: digests[index])
    mask = np.zeros(len(unique), dtype=bool)
    mask[order[: max(1, round(share * len(unique)))]] = True
    return mask[inverse] if len(unique) > 1 else np.zeros(len(keys), dtype=bool)


def folds(keys: NDArray[np.str_], share: float) -> list[NDArray[np.bool_]]:
    """Return the held-out points of successive fits: one fit if it holds out enough points.

    Args:
        keys: as for `held_out`.
        share: share of the keys held out of every fit.
    """
    out = held_out(keys, share)
    if out.sum() >= FEWEST_UNSEEN or len(keys) < 2:
        return [out]
    unique, inverse = np.unique(keys, return_inverse=True)
    if len(unique) < FEWEST_KEYS:
        inverse = np.arange(len(keys))
    count = int(inverse.max()) + 1
    number = min(count, max(2, round(1 / share)))
    order = np.random.default_rng(0).permutation(count) % number
    return [order[inverse] == fold for fold in range(number)]


def errors(predicted_s: Array, measured_s: Array) -> ErrorOnUnseen:
    """Return median and 90th percentile of the relative error, large and small kernels apart."""
    relative = np.abs(predicted_s / measured_s - 1.0)
    large = measured_s > LARGE_S
    quantiles = _quantiles(relative)
    return ErrorOnUnseen(
        shapes=len(relative),
        median=quantiles[0] or 0.0,
        p90=quantiles[1] or 0.0,
        large_median=_quantiles(relative[large])[0],
        large_p90=_quantiles(relative[large])[1],
        small_median=_quantiles(relative[~large])[0],
        small_p90=_quantiles(relative[~large])[1],
    )


def stated(error: ErrorOnUnseen) -> dict[str, float | None]:
    """Return the errors under the names that the commands print."""
    return {
        "median_error": error.median,
        "p90_error": error.p90,
        "large_median_error": error.large_median,
        "large_p90_error": error.large_p90,
        "small_median_error": error.small_median,
        "small_p90_error": error.small_p90,
    }


def _quantiles(relative: Array) -> tuple[float | None, float | None]:
    if not len(relative):
        return None, None
    return float(f"{np.median(relative):.4g}"), float(f"{np.quantile(relative, 0.9):.4g}")
