"""Errors of predictions beside measured rows, by group: the runner and the table of the accuracy commands.

A command gives rows, what predicts the figures of a row, and the groups that a figure counts in. Errors are
predicted over measured, less 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from core.errors import MeshwrightError

HEAD = "rows  median    p90  worst    bias  middle"
"""Names of the figures of `Spread.words`."""


class Spread(NamedTuple):
    """Errors of some rows, as shares."""

    n: int
    median: float
    """Of the sizes."""
    p90: float
    """90th percentile of the sizes."""
    worst: float
    """Largest size."""
    bias: float
    """Mean of the signed errors."""
    middle: float
    """Median of the signed errors."""

    @classmethod
    def of(cls, errors: Iterable[float]) -> Spread:
        """Sum up signed errors; there must be one at least."""
        signed = np.array(list(errors), float)
        size = np.abs(signed)
        return cls(
            len(signed),
            float(np.median(size)),
            float(np.percentile(size, 90)),
            float(size.max()),
            float(signed.mean()),
            float(np.median(signed)),
        )

    def words(self) -> str:
        """The figures in percent, below `HEAD`."""
        median, p90, worst, bias, middle = (100 * value for value in self[1:])
        return f"{self.n:>4}  {median:>6.1f} {p90:>6.1f} {worst:>6.1f} {bias:>+7.1f} {middle:>+7.1f}"


class Errors(dict[str, list[float]]):
    """Errors by group, in the order in which groups were met; ``skipped`` counts rows by the reason.

    Args:
        skipped: a reason for each row that was skipped.
    """

    def __init__(self, skipped: Iterable[str] = ()) -> None:
        super().__init__()
        self.skipped = Counter(skipped)

    def count(self, error: float, *groups: str) -> float:
        """Count an error in some groups, and return it."""
        for group in groups:
            self.setdefault(group, []).append(error)
        return error

    def add(self, predicted: float, measured: float, *groups: str) -> float:
        """Count a figure in some groups.

        Returns:
            Its error.
        """
        return self.count(predicted / measured - 1.0, *groups)

    def lines(self, what: str = "%", order: Callable[[str], object] | None = None) -> Iterator[str]:
        """A table with a line a group, and a line a reason for which rows were skipped.

        Args:
            what: head of the names.
            order: sorts groups; none: as they were met.
        """
        width = max([len(what), *map(len, self)])
        if self:
            yield f"{what:<{width}}  {HEAD}"
        for group in self if order is None else sorted(self, key=order):  # type: ignore[arg-type]
            yield f"{group:<{width}}  {Spread.of(self[group]).words()}"
        for reason, count in self.skipped.most_common():
            yield f"{count} skipped: {reason}"


RowT = TypeVar("RowT")
Figures = Iterable[tuple[str, float, float]]
"""Names of figures of a row, predicted and measured."""


def compared(
    rows: Iterable[RowT],
    predict: Callable[[RowT], Figures],
    groups: Callable[[RowT, str], Iterable[str]] = lambda row, figure: (figure,),
) -> Errors:
    """Predict rows and count the errors of their figures.

    Args:
        rows: measured rows.
        predict: figures of a row; a row that it refuses is skipped.
        groups: those that a figure of a row counts in; its own name by default.
    """
    errors = Errors()
    for row in rows:
        try:
            figures = list(predict(row))
        except MeshwrightError as error:
            errors.skipped[str(error)] += 1
            continue
        for figure, predicted, measured in figures:
            errors.add(predicted, measured, *groups(row, figure))
    return errors
