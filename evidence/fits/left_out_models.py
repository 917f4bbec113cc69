"""How much of an engine's time a layer holds on models that a fit did not see, and the table that says so.

A preset's ``layer_s`` holds what an engine adds to each layer, and errors of kernels on the models of its
rows. The second part does not travel to another model. Fits without each model in turn tell how much does: a
share of ``layer_s`` by class (engine, layers, format, generation of devices), the one with the least error
that a new model of the class is to expect. Models count alike, whatever the number of their rows. What a
share gains over kernels alone varies between the models of a class and between classes; the mean of a class
is drawn to that of all as far as the first spread, over its number of models, exceeds the second. The
headline's shares come from the other models, so that no row of a model decides what it is predicted with.
They are shares of the time that a fit without the model finds, and ship as such (`scaled`). A class that the
headline shows worse than kernels alone ships none of its time a layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.fits.left_out_errors import CONSTANTS, Cell, Off, figures_of, gathered
from evidence.fits.served_rows import FIRST, REST, Group

Array = NDArray[np.float64]

SHARES = np.linspace(0.0, 1.0, 5)
"""Shares of ``layer_s`` that are compared; none stands for kernels alone."""
FEWEST = 20
"""Least number of rows of a class that is held against kernels alone."""
FEWEST_OF_MODEL = 5
"""Least number of a model's rows in a class by which they tell of it."""
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


def gains(left: Iterable[LeftOutErrors]) -> dict[TimesClass, list[Array]]:
    """Median errors of TPOT less those of kernels alone by share, of each model of a class."""
    joined: dict[tuple[TimesClass, str], list[Array]] = defaultdict(list)
    for entry in left:
        joined[entry.of, entry.model].append(entry.errors)
    by_class: dict[TimesClass, list[Array]] = defaultdict(list)
    for (of, _), parts in joined.items():
        errors = np.abs(np.concatenate(parts, axis=1))
        if errors.shape[1] >= FEWEST_OF_MODEL:
            medians = np.median(errors, axis=1)
            by_class[of].append(medians - medians[0])
    return by_class


def expected(by_class: Mapping[TimesClass, Sequence[Array]]) -> tuple[dict[TimesClass, Array], Array]:
    """What a new model of each class, and of a class without models, is to expect by share.

    The mean of a class (of K models) is drawn to the mean of all classes by B / (B + W / K), with the
    variances within classes W and between them B (the normal model of meta-analyses; DerSimonian and Laird
    1986), estimated at each share.

    Args:
        by_class: changes of errors by class and model, arrays of shape (shares,).
    """
    counts = np.array([len(models) for models in by_class.values()], dtype=np.float64)
    means = np.array([np.mean(models, axis=0) for models in by_class.values()])
    common = means.mean(axis=0)
    squares = sum(np.var(models, axis=0) * len(models) for models in by_class.values())
    within = squares / max(counts.sum() - len(counts), 1.0)
    spread = np.var(means, axis=0, ddof=1) if len(means) > 1 else np.full(len(SHARES), np.inf)
    between = np.maximum(spread - within * np.mean(1.0 / counts), 0.0)
    factor = np.ones_like(means)
    noise = within / counts[:, None] * np.ones_like(means)
    np.divide(1.0, 1.0 + noise / np.maximum(between, 1e-12), out=factor, where=noise > 0.0)
    drawn = factor * means + (1.0 - factor) * common
    return dict(zip(by_class, drawn, strict=True)), common


def shares_without(left: Sequence[LeftOutErrors], model: str | None = None) -> Callable[[Group], float]:
    """Share of ``layer_s`` by group that models left out confirm, without one model's rows.

    Args:
        left: errors on all models left out.
        model: whose rows are to decide nothing; None: all decide.
    """
    other_gains = gains(entry for entry in left if entry.model != model)
    if not other_gains:
        return lambda group: 1.0
    by_class, common = expected(other_gains)
    share = {of: float(SHARES[np.argmin(errors)]) for of, errors in by_class.items()}
    others = float(SHARES[np.argmin(common)])
    return lambda group: share.get(TimesClass.of(group), others)


def layer_s_unseen(
    left: Iterable[LeftOutErrors], without: Mapping[str, Mapping[Group, Array]]
) -> dict[Group, float]:
    """``layer_s`` by group as other models say it: without each model of its class, the mean.

    Args:
        left: errors on all models left out, which tell the models of a class.
        without: constants by the model that is left out.
    """
    models: dict[TimesClass, set[str]] = defaultdict(set)
    for entry in left:
        models[entry.of].add(entry.model)
    groups = {group for times in without.values() for group in times}
    seen = {group: sorted(models[of]) for group in groups if (of := TimesClass.of(group)) in models}
    return {
        group: float(np.mean([without[model][group][LAYER] for model in names]))
        for group, names in seen.items()
    }


def scaled(
    times: Mapping[Group, Array], share: Callable[[Group], float], unseen: Mapping[Group, float] | None = None
) -> dict[Group, Array]:
    """Constants with shares of ``layer_s``.

    A share is of what other models say of a class. Where its own rows say less, the fit has taken a part of
    the difference already, so the share of the others' time ships, at most that of the fit.

    Args:
        times: constants as fitted.
        share: by group.
        unseen: ``layer_s`` as other models say it, where known.
    """
    scaled_times = {}
    for group, values in times.items():
        fitted = float(values[LAYER])
        others = max(fitted, (unseen or {}).get(group, fitted))
        scaled_times[group] = values.copy()
        scaled_times[group][LAYER] = min(fitted, share(group) * others)
    return scaled_times


def kernels_alone(group: Group) -> float:
    """The share of the baseline."""
    return 0.0


def worse_than_alone(off: Off, alone: Off) -> set[TimesClass]:
    """Classes of `FEWEST` rows and more whose TPOT on models left out kernels alone predict better.

    Args:
        off: errors with the presets' constants.
        alone: errors of kernels alone.
    """
    classes = {TimesClass.of(cell.group) for cell in off if cell.kind == REST}

    def errors(part: Off, of: TimesClass) -> Array:
        return gathered(part, lambda cell: cell.kind == REST and TimesClass.of(cell.group) == of)

    return {of for of in classes if _worse(errors(off, of), errors(alone, of))}


def _worse(ours: Array, alone: Array) -> bool:
    return len(ours) >= FEWEST and bool(np.median(abs(ours)) > np.median(abs(alone)))


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
    worse = "yes" if _worse(ours, theirs) else ""
    cells = (
        figures_of(errors).partition(" (n")[0] if len(errors) else "" for errors in (ours, theirs, first)
    )
    return f"| {name} | {len(ours)} | " + " | ".join(cells) + f" | {worse} |"
