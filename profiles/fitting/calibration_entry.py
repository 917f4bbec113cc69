"""One calibration entry from one group of points: fit, error on held-out shapes, fit again on all points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.loading import Strict
from hwmodels.kernels.calibration import ErrorOnUnseen
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.residual import ResidualGrid
from profiles.fitting.holdout import errors, folds, held_out
from profiles.fitting.operations import FittedOperation
from profiles.fitting.residuals import MOST_NODES, Smoother, best_smoother, residual_grid
from profiles.fitting.robust import fit
from profiles.points import Points

Array = NDArray[np.floating]

MICROSECOND = 1e-6
FEWEST_TO_JUDGE = 4
"""Minimum number of points to hold some out: a point in the cache does not predict one outside it."""
MOST_OF_HALF, MOST_OF_GRID = 1500, 5000
"""Points of a half that its form and its grid are fitted to, every so many."""
NODES_OF_HALF = 40_000
GOOD_FORM = 0.07, 0.22
"""Median and 90th percentile of the error within which a form needs no grid."""
NOT_JUDGED = {"median": 0.1, "p90": 0.25}
"""Error of estimates."""


@dataclass(frozen=True)
class Unseen:
    """Held-out points: measured, and predicted by the fit without them (seconds)."""

    measured_s: Array
    form_s: Array
    corrected_s: Array | None


@dataclass(frozen=True)
class FittedEntry:
    """A form fitted on all points, with its error on points held out of a first fit."""

    form: Strict
    error: ErrorOnUnseen
    error_with_points: ErrorOnUnseen | None
    grid: ResidualGrid | None
    unseen: Unseen


def fit_entry(
    operation: FittedOperation[Any], chip: Chip, points: Points, prior: Strict, share: float, keeps_grid: bool
) -> FittedEntry:
    """Fit one operation's form to one group of points.

    The form is fitted twice: without a share of the shapes, on which its error is stated, and with them. Of
    few points, one share after another is kept out, until the error is stated on all of them.

    Args:
        operation: the operation to fit.
        chip: the device at the points' dtype.
        points: at least `operation.least` of them.
        prior: constants of a similar device; missing keys of mappings are filled in where points need them.
        share: share of the shapes held out.
        keeps_grid: whether to keep a grid of residuals.
    """
    prior = _with_keys(prior, points)
    kept_out = folds(operation.key(points), share)
    tried = [_try(operation, chip, points, out, prior, share, keeps_grid) for out in kept_out]
    smoother, unseen = tried[0].smoother, _joined([each.unseen for each in tried])
    error, with_points = errors(unseen.form_s, unseen.measured_s), None
    if len(points) < FEWEST_TO_JUDGE:
        error = ErrorOnUnseen(shapes=0, **NOT_JUDGED)
    if unseen.corrected_s is not None:
        with_points = errors(unseen.corrected_s, unseen.measured_s)
        scores = [_score(predicted, unseen.measured_s) for predicted in (unseen.corrected_s, unseen.form_s)]
        if scores[0] >= scores[1]:
            unseen, with_points = replace(unseen, corrected_s=None), None
    final = _fit_variants(replace(operation, starts=({},), variants=({},)), chip, points, tried[0].form)
    keeps = with_points is not None and smoother is not None
    return FittedEntry(
        form=final,
        error=error,
        error_with_points=with_points,
        grid=_grid(operation, chip, points, final, smoother) if keeps and smoother else None,
        unseen=unseen,
    )


def fit_half(
    operation: FittedOperation[Any],
    chip: Chip,
    seen: Points,
    apart: Points,
    prior: Strict,
    good: tuple[float, float] = GOOD_FORM,
) -> FittedEntry:
    """Fit one operation's form to one half of the points, and state its error on the other half.

    Unlike `fit_entry`, the form and the grid are never fitted to the points kept apart.

    Args:
        operation: the operation to fit.
        chip: the device at the points' dtype.
        seen: points of the fit.
        apart: points on which the error is stated.
        prior: constants of a similar device; missing keys of mappings are filled in where points need them.
        good: median and 90th percentile of the error within which a form needs no grid of residuals.
    """
    few = seen.where(np.arange(0, len(seen), -(-len(seen) // MOST_OF_HALF)))
    form = _fit_variants(operation, chip, few, _with_keys(prior, seen))
    form_s, measured_s = operation.seconds(form, chip, apart), apart["time_us"] * MICROSECOND
    error, with_points, grid, corrected_s = errors(form_s, measured_s), None, None, None
    if error.median > good[0] or error.p90 > good[1]:
        dense = seen.where(np.arange(0, len(seen), -(-len(seen) // MOST_OF_GRID)))
        smoother = _smoother(operation, chip, dense, form, 0.15)
        grid = _grid(operation, chip, dense, form, smoother, NODES_OF_HALF) if smoother else None
    if grid is not None:
        corrected_s = form_s * grid.factor(*_coordinates(operation, form, apart))
        if _score(corrected_s, measured_s) < _score(form_s, measured_s):
            with_points = errors(corrected_s, measured_s)
        else:
            grid, corrected_s = None, None
    return FittedEntry(form, error, with_points, grid, Unseen(measured_s, form_s, corrected_s))


@dataclass(frozen=True)
class _Try:
    """One fit with some points held out."""

    form: Strict
    smoother: Smoother | None
    unseen: Unseen


def _try(
    operation: FittedOperation[Any],
    chip: Chip,
    points: Points,
    out: NDArray[np.bool_],
    prior: Strict,
    share: float,
    keeps_grid: bool,
) -> _Try:
    seen, unseen = points.where(~out), points.where(out)
    form = _fit_variants(operation, chip, seen, prior)
    form_s = operation.seconds(form, chip, unseen)
    corrected_s, smoother = None, None
    if keeps_grid and operation.coordinates is not None:
        smoother = _smoother(operation, chip, seen, form, share)
    if smoother:
        grid = _grid(operation, chip, seen, form, smoother)
        corrected_s = form_s * grid.factor(*_coordinates(operation, form, unseen))
    return _Try(form, smoother, Unseen(unseen["time_us"] * MICROSECOND, form_s, corrected_s))


def _joined(parts: list[Unseen]) -> Unseen:
    """All held-out points; if any part is corrected, parts without a correction use their form."""
    corrected = None
    if any(part.corrected_s is not None for part in parts):
        each = [part.form_s if part.corrected_s is None else part.corrected_s for part in parts]
        corrected = np.concatenate(each)
    measured, form = ([getattr(part, name) for part in parts] for name in ("measured_s", "form_s"))
    return Unseen(np.concatenate(measured), np.concatenate(form), corrected)


def _coordinates(operation: FittedOperation[Any], form: Strict, points: Points) -> Any:
    if operation.coordinates is None:
        raise ValueError(f"{operation.name} keeps no residuals")
    return operation.coordinates(form, points)


def _ratios(operation: FittedOperation[Any], chip: Chip, points: Points, form: Strict) -> Array:
    return points["time_us"] * MICROSECOND / operation.seconds(form, chip, points)


def _smoother(
    operation: FittedOperation[Any], chip: Chip, points: Points, form: Strict, share: float
) -> Smoother | None:
    out = held_out(operation.key(points), min(share, 0.15), "smoother")
    ratios = _ratios(operation, chip, points, form)
    return best_smoother(_coordinates(operation, form, points), ratios, operation.smoothers, out)


def _grid(
    operation: FittedOperation[Any],
    chip: Chip,
    points: Points,
    form: Strict,
    smoother: Smoother,
    most_nodes: int = MOST_NODES,
) -> ResidualGrid:
    ratios = _ratios(operation, chip, points, form)
    return residual_grid(_coordinates(operation, form, points), ratios, smoother, most_nodes)


def _fit_variants(operation: FittedOperation[Any], chip: Chip, points: Points, prior: Strict) -> Strict:
    """Return the best fit over the operation's variants, by the median log error and its 90th percentile."""
    measured = points["time_us"] * MICROSECOND
    best, best_score = prior, np.inf
    for variant in operation.variants:
        begin = prior.model_copy(update=dict(variant))

        def predict(form: Strict, indices: NDArray[np.intp]) -> Array:
            return operation.seconds(form, chip, points.where(indices))

        form = fit(begin, operation.numbers, predict, measured, operation.starts)
        score = _score(operation.seconds(form, chip, points), measured)
        if score < best_score:
            best, best_score = form, score
    return best


def _score(predicted: Array, measured: Array) -> float:
    wrong = np.abs(np.log(predicted / measured))
    return float(np.median(wrong) + np.quantile(wrong, 0.9) / 3.0)


def better(first: FittedEntry, second: FittedEntry) -> bool:
    """Whether the first entry's form predicts unseen shapes better than the second's."""
    scores = [_score(entry.unseen.form_s, entry.unseen.measured_s) for entry in (first, second)]
    return scores[0] <= scores[1]


def _with_keys(prior: Strict, points: Points) -> Strict:
    """Give the prior one efficiency for each head dimension that the points have (and no others)."""
    efficiency = getattr(prior, "efficiency", None)
    if not isinstance(efficiency, Mapping) or "head_dim" not in points.columns:
        return prior
    needed = np.unique(points["head_dim"]).astype(int)
    logs = np.log(sorted(efficiency))
    values = np.interp(np.log(needed), logs, [efficiency[key] for key in sorted(efficiency)])
    return prior.model_copy(update={"efficiency": dict(zip(needed.tolist(), values.tolist(), strict=True))})
