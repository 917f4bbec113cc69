"""What a fit needs to know of an operation: its table, its form's numbers, how to predict a point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.loading import Strict
from hwmodels.kernels.chip import Chip
from profiles.fitting.residuals import Smoother
from profiles.fitting.robust import Number
from profiles.points import Points

FormT = TypeVar("FormT", bound=Strict)
Array = NDArray[np.floating]


@dataclass(frozen=True)
class FittedOperation(Generic[FormT]):
    """One operation with one form.

    Attributes:
        name: the calibration's field that holds its constants.
        table: the points' table.
        generic: the form to begin with where no device of the generation has constants.
        numbers: what is fitted of the form.
        seconds: predicted times of points.
        key: what of a point is unseen together when points are kept out.
        least: points below which nothing is fitted.
        starts: values to begin further attempts with.
        coordinates: of the residual grid, above 0; none where residuals are not kept.
        smoothers: ways in which residuals may hang together; points kept out choose among them.
        variants: other values of what is not a number, each fitted, the best kept.
    """

    name: str
    table: str
    generic: FormT
    numbers: tuple[Number, ...]
    seconds: Callable[[FormT, Chip, Points], Array]
    key: Callable[[Points], NDArray[np.str_]]
    least: int = 8
    starts: tuple[Mapping[str, float], ...] = ({},)
    coordinates: Callable[[FormT, Points], Sequence[Array]] | None = None
    smoothers: tuple[Smoother, ...] = ()
    variants: tuple[Mapping[str, object], ...] = field(default=({},))


def joined(*columns: NDArray[np.generic]) -> NDArray[np.str_]:
    """Return the columns' values as text, joined point by point."""
    text = columns[0].astype(str)
    for column in columns[1:]:
        text = np.char.add(np.char.add(text, "/"), column.astype(str))
    return text


def floats(points: Points, *names: str) -> tuple[Array, ...]:
    """Return columns as floats."""
    return tuple(points[name].astype(np.float64) for name in names)
