"""Robust fits of a form's numbers to measured times, in log space, from several starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from core.loading import Strict

FormT = TypeVar("FormT", bound=Strict)
Array = NDArray[np.floating]

GET_SCIPY = "fitting measured points needs scipy; install it with: pip install '.[calibrate]'"
SCALE = 0.05
"""Log error at which the loss turns from square to linear (soft-L1)."""
PRIOR_WEIGHT = 0.125
"""Log residual that one e-fold away from the prior counts as; it fades as points grow in number."""
MOST_POINTS = 2500
"""Maximum number of points of a fit, drawn uniformly at random."""


@dataclass(frozen=True)
class Number:
    """One fitted number of a form.

    Attributes:
        path: field of the form; "efficiency.128" is a key of a mapping.
        low, high: bounds, above 0.
        rank: 0 for the few that few points can identify, 1 for the next, 2 for the rest.
    """

    path: str
    low: float
    high: float
    rank: int = 2


Values = dict[str, float]


def read_numbers(form: Strict, numbers: Sequence[Number]) -> Values:
    """Return the form's present values, without missing ones."""
    values = {}
    for number in numbers:
        field, _, key = number.path.partition(".")
        value = getattr(form, field, None)
        if key and value is not None:
            value = value.get(int(key))
        if value is not None:
            values[number.path] = float(value)
    return values


def with_numbers(form: FormT, values: Mapping[str, float]) -> FormT:
    """Return a copy of the form with other values."""
    fields: dict[str, Any] = {}
    for path, value in values.items():
        field, _, key = path.partition(".")
        if key:
            fields.setdefault(field, dict(getattr(form, field)))[int(key)] = value
        else:
            fields[field] = value
    return form.model_copy(update=fields)


def free_numbers(numbers: Sequence[Number], points: int) -> list[Number]:
    """Return the numbers that a count of points can identify: the first ranks up to 30 and up to 100
    points."""
    highest = 0 if points <= 30 else 1 if points <= 100 else 2
    return [number for number in numbers if number.rank <= highest]


def fit(
    prior: FormT,
    numbers: Sequence[Number],
    predict: Callable[[FormT, NDArray[np.intp]], Array],
    measured_s: Array,
    starts: Sequence[Mapping[str, float]] = ({},),
) -> FormT:
    """Return the form whose predictions are nearest to the measured times.

    Minimises soft-L1 of the log ratio, plus a pull towards the prior, by trust-region least squares.

    Args:
        prior: the form to start from; what is not in `numbers` stays as it is.
        numbers: what to fit; how many of them are free depends on how many points there are.
        predict: seconds of a form at the points with these indices.
        measured_s: seconds.
        starts: values that replace the prior's at the start of each attempt; the best attempt wins.
    """
    least_squares = scipy_function("least_squares")
    rows = np.arange(len(measured_s))
    if len(rows) > MOST_POINTS:
        rows = np.sort(np.random.default_rng(0).permutation(len(rows))[:MOST_POINTS])
    logs = np.log(measured_s[rows])
    values = read_numbers(prior, numbers)
    free = [number for number in free_numbers(numbers, len(measured_s)) if number.path in values]
    low = np.log([number.low for number in free])
    high = np.log([number.high for number in free])
    centre = np.clip(np.log([max(values[number.path], 1e-30) for number in free]), low, high)

    def build(point: Array) -> FormT:
        return with_numbers(
            prior, {number.path: float(v) for number, v in zip(free, np.exp(point), strict=True)}
        )

    def residuals(point: Array) -> Array:
        errors = np.log(predict(build(point), rows)) - logs
        return np.concatenate([errors, PRIOR_WEIGHT * (point - centre)])

    best, best_cost = prior, np.inf
    for start in starts:
        begin = centre.copy()
        for index, number in enumerate(free):
            if number.path in start:
                begin[index] = np.log(start[number.path])
        begin = np.clip(begin, low + 1e-6, high - 1e-6)
        solution = least_squares(
            residuals, begin, bounds=(low, high), loss="soft_l1", f_scale=SCALE, diff_step=1e-3, max_nfev=80
        )
        if solution.cost < best_cost:
            best, best_cost = build(solution.x), solution.cost
    return rounded(best, [number.path for number in free])


def scipy_function(name: str) -> Callable[..., Any]:
    """A function of scipy.optimize.

    Raises:
        InputError: scipy is not installed.
    """
    try:
        from scipy import optimize
    except ImportError:
        raise InputError(GET_SCIPY) from None
    return getattr(optimize, name)


def rounded(form: FormT, paths: Sequence[str], digits: int = 4) -> FormT:
    """Return the form with these numbers at so many significant digits, as they are written to files."""
    values = read_numbers(form, [Number(path, 0.0, 0.0) for path in paths])
    return with_numbers(form, {path: float(f"{value:.{digits}g}") for path, value in values.items()})
