"""How much of an engine's time a layer holds on models that a fit did not see, and the table that says so.

A preset's ``layer_s`` holds what an engine adds to each layer, and errors of kernels on the models of its
rows. The second part does not travel to another model. Fits without each model in turn tell how much does: a
share of ``layer_s`` by class (engine, layers, format, generation of devices), the one with the least median
error on the rows of the models left out. A class with few rows takes the share of all rows together. The
headline's shares come from the other models, so that no row of a model decides what it is predicted with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.fits.left_out_errors import CONSTANTS, Cell, Off, figures_of, gathered
from evidence.fits.served_rows import FIRST, REST, Group

Array = NDArray[np.float64]

SHARES = np.linspace(0.0, 1.0, 5)
"""Shares of ``layer_s`` that are compared; none stands for kernels alone."""
FEWEST = 20
"""Least number of left-out rows by which a share is chosen."""
LAYER = CONSTANTS.index("layer_s")


class TimesClass(NamedTuple):
    """Groups of all versions of an engine that share what travels."""

    engine: str
    layers: str
    format: str
    generation: str

    @classmethod
    def of(cls, group: Group) -> TimesClass:
        """The class of a group."""
        return cls(group.family[0], *group[1:])


class LeftOutErrors(NamedTuple):
    """Errors of TPOT on the rows of a model in a class, by share of ``layer_s``, shape (shares, rows)."""

    of: TimesClass
    model: str
    errors: Array


def best_share(errors: Iterable[Array]) -> float | None:
    """The share with the least median error; None with less than `FEWEST` rows."""
    joined = np.concatenate([np.zeros((len(SHARES), 0)), *errors], axis=1)
    if joined.shape[1] < FEWEST:
        return None
    return float(SHARES[np.argmin(np.median(np.abs(joined), axis=1))])


def shares_without(left: Sequence[LeftOutErrors], model: str | None = None) -> Callable[[Group], float]:
    """Share of ``layer_s`` by group that models left out confirm, without one model's rows.

    Args:
        left: errors on all models left out.
        model: whose rows are to decide nothing; None: all decide.
    """
    seen = [entry for entry in left if entry.model != model]
    common = best_share(entry.errors for entry in seen)
    by_class: dict[TimesClass, list[Array]] = defaultdict(list)
    for entry in seen:
        by_class[entry.of].append(entry.errors)
    by_share = {of: best_share(errors) for of, errors in by_class.items()}

    def share(group: Group) -> float:
        confirmed = by_share.get(TimesClass.of(group))
        return confirmed if confirmed is not None else 1.0 if common is None else common

    return share


def scaled(times: dict[Group, Array], share: Callable[[Group], float]) -> dict[Group, Array]:
    """Constants with shares of ``layer_s``."""
    factors = np.ones(len(CONSTANTS))
    scaled_times = {}
    for group, values in times.items():
        factors[LAYER] = share(group)
        scaled_times[group] = values * factors
    return scaled_times


def kernels_alone(group: Group) -> float:
    """The share of the baseline."""
    return 0.0


def headline(what: str, off: Off, alone: Off) -> Iterator[str]:
    """Lines of the table of errors on what is left out, by class, beside those of kernels alone.

    Args:
        what: is left out.
        off: errors with the presets' constants.
        alone: errors of kernels alone: no time a layer.
    """
    columns = "rows | TPOT: median / p90 / bias % | kernels alone | TTFT | worse than alone"
    yield f"| {what} left out | {columns} |"
    yield "|---|---|---|---|---|---|"
    yield _line("all", off, alone, lambda cell: True)
    folders = sorted({cell.folder for cell in off})
    for folder in folders if len(folders) > 1 else ():
        yield _line(f"rows of `{folder}`", off, alone, lambda cell: cell.folder == folder)  # noqa: B023
    for of in sorted({TimesClass.of(cell.group) for cell in off if cell.kind == REST}):
        yield _line(" ".join(filter(None, of)), off, alone, lambda cell: TimesClass.of(cell.group) == of)  # noqa: B023


def _line(name: str, off: Off, alone: Off, counts: Callable[[Cell], bool]) -> str:
    """A line of the table."""
    ours, theirs, first = (
        gathered(part, lambda cell: cell.kind == kind and counts(cell))  # noqa: B023
        for part, kind in ((off, REST), (alone, REST), (off, FIRST))
    )
    worse = "yes" if len(ours) >= FEWEST and np.median(abs(ours)) > np.median(abs(theirs)) else ""
    cells = (
        figures_of(errors).partition(" (n")[0] if len(errors) else "" for errors in (ours, theirs, first)
    )
    return f"| {name} | {len(ours)} | " + " | ".join(cells) + f" | {worse} |"
