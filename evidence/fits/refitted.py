"""Engine constants fitted without the rows of one model or engine, kept in a file between runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from evidence.fits import fit_engines
from evidence.fits.left_out_models import layer_s_unseen, scaled, shares_without
from evidence.fits.served_rows import Group, group_of
from evidence.serving.case import Setup

Constants = dict[Group, np.ndarray]
"""Constants by group, in the order of `fit_engines.CONSTANTS`."""
LEFT: dict[str, Callable[[Setup], str]] = {
    "model": lambda setup: setup.model.name,
    "engine": lambda setup: setup.engine.engine,
}
"""What a fit leaves out, of a replica."""
NOTHING = ""
"""Stands for the fit of all rows."""


def constants(folders: Sequence[Path], fits_file: Path | None = None) -> dict[str, dict[str, Constants]]:
    """Constants of fits by what they leave out: the rows of a model, of an engine, or `NOTHING`.

    Args:
        folders: of published runs.
        kept: file of the fits, read where it exists, else written.
    """
    if fits_file and fits_file.exists():
        fits = json.loads(fits_file.read_text())
    else:
        fits = _fits(folders)
        if fits_file:
            fits_file.write_text(json.dumps(fits))
    return {
        what: {
            value: {Group(*group): np.array(times) for *group, times in lines}
            for value, lines in same.items()
        }
        for what, same in fits.items()
    }


def _fits(folders: Sequence[Path]) -> dict[str, dict[str, list]]:
    rows = fit_engines.fitted_rows(folders)
    fit_engines.fresh_tables()
    fit = fit_engines.Fit(fit_engines.with_empty(rows))
    models = fit.left_out_models()
    share, unseen = shares_without(models), layer_s_unseen(models, fit.without_models)
    fits = {}
    for what, name in LEFT.items():
        fits[what] = {NOTHING: _lines(scaled(fit.times, share, unseen))}
        for value in sorted({name(runs.setup) for same in rows.values() for runs in same}):
            others = shares_without(models, value) if what == "model" else share
            times = fit.without(lambda runs: name(runs.setup) == value)  # noqa: B023
            fits[what][value] = _lines(scaled(times, others))
    return fits


def _lines(times: Constants) -> list[list[object]]:
    return [[*group, values.tolist()] for group, values in times.items()]


def assign(setups: Iterable[Setup], times: Constants) -> None:
    """Give the replicas of fitted groups other constants; those of other groups keep theirs."""
    groups = defaultdict(list)
    for setup in setups:
        groups[group_of(setup)].append(setup)
    for group, same in groups.items():
        if group in times:
            fit_engines.assign(same, times[group])
