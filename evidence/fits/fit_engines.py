"""Fit the times around kernels of all engine versions, classes of layers and number formats together.

    python -m benchmarks.fit_engines FOLDER ... [--leave-out WHAT ... [--replay N]] [--write [PRESET ...]] ...

Each FOLDER holds published runs (`closed_loop.csv.gz`, `energy.csv.gz`, `static_batch.csv`, ...). A constant
is a mean and effects of what groups of rows share (engine and scheduling policy, class of layers, format,
device generation, version), so that a class with few rows takes its engine's mean
(`evidence/fits/pooled.py`).
TPOT (or ITL, latency, throughput) and TTFT are fitted together, since prefill kernels tell in both.
Fits without each model in turn give the share of a preset's time a layer that holds on other models
(`evidence/fits/left_out_models.py`); the headline is the table of their errors beside those of kernels alone.
A class that the table shows worse than kernels alone ships no time a layer.
``--leave-out`` also fits without each source (or GPU, ...) in turn and prints the same table; with
``--replay N`` those of the event engine on every Nth closed loop too.
``--test`` prints errors on rows of another folder, which are in no fit, without the third that is kept apart.
``--write`` puts constants (those of the presets that follow, or all) into `simulator/serving/engines/*.yaml`;
``--errors`` writes `meshwright/measured/served_errors.csv`, which reports print: errors by what the fit
leaves out (models, engines on devices).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated
from zlib import crc32

import numpy as np

from evidence.command import command
from evidence.fits.engine_files import SOURCE, entry_of, write_all
from evidence.fits.engine_levels import LEVELS
from evidence.fits.left_out_errors import (
    CONSTANTS,
    Cell,
    Off,
    summary,
    table_of_groups,
    write_errors,
)
from evidence.fits.left_out_models import (
    LAYER,
    SHARES,
    LeftOutErrors,
    TimesClass,
    headline,
    kernels_alone,
    layer_s_unseen,
    scaled,
    shares_without,
    worse_than_alone,
)
from evidence.fits.left_out_runs import replayed
from evidence.fits.pooled import ROUNDS, LinearErrors, Noise, linear, solve, towards
from evidence.fits.served_rows import FIRST, MOST, OFFLINE, RATE, REST, Group, Rows, read
from evidence.serving.case import Setup
from simulator.serving.engines import BLACKWELL, engines, layer_times
from simulator.serving.engines.engine import LayerTimes
from simulator.serving.steady import kinds as replicas
from simulator.serving.steady.kinds import price_of
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.steps.step_arrays import StepArrays, StepCases
from simulator.serving.steps.table import IterationTable

MEAN = np.array([20e-6, 3e-6, 15e-6, 1.05, 4e-3, 800e-6])
"""Mean of the constants before any row is seen."""
SCALE = np.array([27e-6, 2.4e-6, 15e-6, 0.36, 25e-3, 800e-6])
"""Their scale: spreads of levels are shares of it."""
FLOOR = np.array([0.0, 0.0, 0.0, 0.4, 0.0, 0.0])
PROMPTS = CONSTANTS.index("prefill_factor")
LEAST_SLOPE = 0.01
"""Least change of a row's error by which it tells of the factor of prompts, for a change by its scale."""
HIDES = np.array([name == "eager_layer_s" for name in CONSTANTS])
NOISE = {FIRST: (0.25, 0.15), REST: (0.08, 0.04), RATE: (0.08, 0.04), OFFLINE: (0.15, 0.3), MOST: (0.15, 0.3)}
"""Relative errors that the fit takes for granted, by kind of metric: of a row, and those that all rows of one
model on one GPU share (its server), so that many rows of one server tell little more of its level than one.
Batches and tables of throughput say little of the time around kernels: lengths and limits are less sure."""


def assign(setups: Iterable[Setup], times: np.ndarray) -> None:
    """Give the tables of replicas other times."""
    for setup in setups:
        price = price_of(setup)
        same_times = price.dense_times is price.times
        price.times = price.times.model_copy(update=dict(zip(CONSTANTS, times.tolist(), strict=True)))
        if same_times:
            price.dense_times = price.times


def fresh_tables() -> None:
    """Make tables read their price's times at each lookup of the fit."""

    def refresh(self: IterationTable) -> None:
        times = self.price.times
        if getattr(self, "fitted", None) is times:
            return
        self.fitted = times  # type: ignore[attr-defined]
        self._around = [float(s) for s in self.price.around(np.arange(self.max_sequences + 1))]
        self.around_s = self._around[0]
        self.sequence_s, self.prefill_factor = times.sequence_s, times.prefill_factor
        if not self.graphs_mixed:
            self._pad()
        self.fitted_cases = StepArrays([self]).cases()  # type: ignore[attr-defined]

    def cases(self: IterationTable) -> StepCases:
        refresh(self)
        return self.fitted_cases  # type: ignore[attr-defined]

    IterationTable.cases = property(cases)  # type: ignore[assignment,method-assign]


class Fit:
    """Constants of all groups from their rows.

    Args:
        rows: by group; a group may have none.
    """

    def __init__(self, rows: dict[Group, list[Rows]]) -> None:
        self.groups = sorted(rows)
        self.rows = [[entry for entry in rows[group] if entry.counts] for group in self.groups]
        # Launches that hide behind kernels tell nothing, so they begin at the mean.
        self.times = {group: np.where(HIDES, MEAN, shipped(group)) for group in self.groups}
        for _ in range(ROUNDS):
            self.evidence = [
                linear(self._errors(seen), self.times[group], SCALE, _noise(seen))
                for group, seen in zip(self.groups, self.rows, strict=True)
            ]
            best = self.solved(self.evidence)
            self.times = {
                group: towards(self._errors(seen), self.times[group], best[group], SCALE, evidence)
                for group, seen, evidence in zip(self.groups, self.rows, self.evidence, strict=True)
            }

    @staticmethod
    def _errors(rows: Sequence[Rows]) -> Callable[[np.ndarray], np.ndarray]:
        """Errors of rows with given constants."""

        def errors(times: np.ndarray) -> np.ndarray:
            assign((entry.setup for entry in rows), times)
            return np.concatenate([np.zeros(0), *(entry.errors() for entry in rows)])

        return errors

    def solved(self, evidence: Sequence[LinearErrors]) -> dict[Group, np.ndarray]:
        """Constants by linear forms of errors."""
        return dict(zip(self.groups, solve(self.groups, LEVELS, MEAN, SCALE, FLOOR, evidence), strict=True))

    def without(self, leave: Callable[[Rows], bool]) -> dict[Group, np.ndarray]:
        """Constants without some rows, by the linear form of the errors around those of all."""
        left = []
        for entry, rows in zip(self.evidence, self.rows, strict=True):
            fitted = [np.full(len(same.measured), not leave(same)) for same in rows]
            left.append(entry.only(np.concatenate([np.zeros(0, dtype=bool), *fitted])))
        return self.solved(left)

    @cached_property
    def tell_of_prompts(self) -> set[Hashable]:
        """Classes of an engine's versions with one scheduling policy whose rows' errors vary with the factor
        of prompts; servers that take whole prompts from the prefix cache say nothing of it."""
        return {
            prompts_of(group)
            for group, entry in zip(self.groups, self.evidence, strict=True)
            if len(entry.errors) and np.any(np.abs(entry.slopes[:, PROMPTS]) > LEAST_SLOPE)
        }

    @cached_property
    def without_models(self) -> dict[str, dict[Group, np.ndarray]]:
        """Constants without each model."""
        names = {entry.setup.model.name for rows in self.rows for entry in rows}
        return {
            name: self.without(lambda entry: entry.setup.model.name == name)  # noqa: B023
            for name in sorted(names)
        }

    def left_out_models(self) -> list[LeftOutErrors]:
        """Errors of TPOT on each model left out, by share of the time a layer, in linear form."""
        return [error for name, times in self.without_models.items() for error in self._left_out(name, times)]

    def _left_out(self, model: str, times: dict[Group, np.ndarray]) -> Iterator[LeftOutErrors]:
        """The same of one model, with constants that were fitted without it."""
        for group, seen, evidence in zip(self.groups, self.rows, self.evidence, strict=True):
            of_model = [
                entry.setup.model.name == model and entry.kind == REST
                for entry in seen
                for _ in entry.measured
            ]
            if not any(of_model):
                continue
            some = evidence.only(np.array(of_model))
            at = times[group] / SCALE - some.at
            lost = np.outer(1.0 - SHARES, some.slopes[:, LAYER] * times[group][LAYER] / SCALE[LAYER])
            off = np.expm1(some.errors + some.slopes @ at - lost)
            yield LeftOutErrors(TimesClass.of(group), model, off)


def prompts_of(group: Group) -> Hashable:
    """What groups share whose rows may tell of each other's prompts."""
    return group.family, *group[1:]


def _noise(rows: Sequence[Rows]) -> Noise:
    """Noise of a group's rows; rows of a model on a GPU share a part."""
    blocks: dict[Hashable, int] = {}
    alone, shared, block = [], [], []
    for entry in rows:
        key = entry.setup.model.name, entry.setup.cluster.device.name, entry.kind
        number = blocks.setdefault(key, len(blocks))
        row, server = NOISE[entry.kind]
        alone += [row] * len(entry.measured)
        shared += [server] * len(entry.measured)
        block += [number] * len(entry.measured)
    return Noise(np.array(alone), np.array(shared), np.array(block, dtype=np.int64))


def shipped(group: Group) -> np.ndarray:
    """Constants that ship."""
    times, _ = layer_times(engines.get(group.engine), group.layers, group.format, group.generation)
    return np.array([getattr(times, name) for name in CONSTANTS])


def errors_of(rows: dict[Group, list[Rows]], times: dict[Group, np.ndarray] | None = None) -> Off:
    """Relative errors of rows with given constants, by default with those that ship (before any fit)."""
    by_key: Off = defaultdict(list)
    for group, same in rows.items():
        if times is not None:
            assign((entry.setup for entry in same), times[group])
        for entry in same:
            cell = Cell(group, entry.kind, entry.setup.cluster.device.name, entry.folder)
            by_key[cell].append(np.expm1(entry.errors()))
    return by_key


EARLIER = (*(SOURCE, "benchmarks/fit_engines.py", "fitted on published runs, see docs/serving-accuracy.md"),)
"""Sources of entries that a fit wrote, the present one or an earlier."""


def kept_groups() -> set[Group]:
    """Groups whose constants are assumed, or of an earlier fit that their sources give a reason to keep."""
    return {group for group, entry in _entries() if entry.source not in EARLIER}


def shipped_groups() -> set[Group]:
    """Groups for which an engine's file has an entry of a fit."""
    return {group for group, entry in _entries() if entry.source in EARLIER}


def _entries() -> Iterator[tuple[Group, LayerTimes]]:
    """Entries of all engines' files, without inherited ones."""
    for engine in engines:
        for entry in engine.times if engine.fitted else ():
            yield Group(engine.name, entry.layers, entry.format, entry.generation), entry


EARLY = (
    *("deepspeed", "llama.cpp", "static", "tensorrt-llm-0.5", "tensorrt-llm-0.11", "vllm-0.4", "vllm-0.6"),
)
"""Presets of before 2025, which `--write` leaves out unless it names them: most of their rows are batches,
which the noise above weighs less, and the fit of 0.13 is nearer to them (batch latency 10.5 for 20.5 %)."""
FOLDS = 5
"""Parts into which layouts are divided to be left out."""


def layout_fold(rows: Rows) -> int:
    """The part of a layout: a model, device, engine family, format and degrees."""
    setup = rows.setup
    pool = setup.pool
    names = setup.model.name, setup.cluster.device.name, setup.engine.engine, pool.stored
    return crc32(repr((*names, pool.tensor, pool.data, pool.expert, pool.pipeline)).encode()) % FOLDS


LEAVE: dict[str, Callable[[Rows], Hashable]] = {
    "source": lambda cell: cell.source,
    "model": lambda cell: cell.setup.model.name,
    "gpu": lambda cell: cell.setup.cluster.device.name,
    "layout": layout_fold,
    "place": lambda cell: f"{cell.setup.engine.engine} on {cell.setup.cluster.device.name}",
}


def fitted_rows(folders: Iterable[Path]) -> dict[Group, list[Rows]]:
    """Rows of folders by group, of groups whose constants are fitted."""
    replicas.TABLES = SharedTables(tables=4096)  # all, or each round would price them again
    groups: dict[Group, list[Rows]] = defaultdict(list)
    for folder in folders:
        for group, same in read(folder).items():
            groups[group] += same
    for group in kept_groups():
        groups.pop(group, None)
    return dict(groups)


def with_empty(rows: dict[Group, list[Rows]]) -> dict[Group, list[Rows]]:
    """The same with groups that have constants of a fit and no rows, on all generations of a family."""
    groups = {*shipped_groups(), *rows}
    there = {(group.family[0], group.generation) for group in rows}
    twins = {group._replace(generation=BLACKWELL) for group in groups if not group.generation}
    groups |= {group for group in twins if (group.family[0], BLACKWELL) in there} - kept_groups()
    return {group: rows.get(group, []) for group in groups}


def left_out(
    rows: dict[Group, list[Rows]], fit: Fit, what: str, models: Sequence[LeftOutErrors]
) -> tuple[Off, Off]:
    """Errors on the rows of each source (model, GPU) with constants of the others, and of kernels alone."""
    name = LEAVE[what]
    both: tuple[Off, Off] = defaultdict(list), defaultdict(list)
    # What other models say of a class is known without a source or a GPU too, but not without a model.
    layer_s = {} if what == "model" else layer_s_unseen(models, fit.without_models)
    for value in sorted({str(name(entry)) for same in rows.values() for entry in same}):
        if what == "model":
            times = fit.without_models[value]
        else:
            times = fit.without(lambda entry: str(name(entry)) == value)  # noqa: B023
        unseen = {g: [entry for entry in same if str(name(entry)) == value] for g, same in rows.items()}
        unseen = {g: same for g, same in unseen.items() if same}
        share = shares_without(models, value if what == "model" else None)
        for off, part in zip(both, (share, kernels_alone), strict=True):
            for key, errors in errors_of(unseen, scaled(times, part, layer_s)).items():
                off[key] += errors
    print("\n".join(headline(what, *both)), flush=True)
    return both


def to_ship(
    times: dict[Group, np.ndarray],
    share: Callable[[Group], float],
    unseen: Mapping[Group, float],
    worse: Container[TimesClass],
    tell_of_prompts: Container[Hashable],
) -> dict[Group, np.ndarray]:
    """Constants that presets ship.

    Effects of other classes may add up to prompts that are faster than their kernels; a class ships that
    only if its rows say so.

    Args:
        times: constants as fitted.
        share: of the time a layer that models left out confirm, by group.
        unseen: the time a layer as other models say it, by group.
        worse: classes that kernels alone predict better, which ship no time a layer.
        tell_of_prompts: see `Fit.tell_of_prompts`.
    """
    ships = scaled(times, lambda group: 0.0 if TimesClass.of(group) in worse else share(group), unseen)
    for group, values in ships.items():
        if prompts_of(group) not in tell_of_prompts:
            values[PROMPTS] = max(values[PROMPTS], 1.0)
    return ships


def replays(rows: dict[Group, list[Rows]], fit: Fit, name: Callable[[Rows], Hashable], every: int) -> None:
    """Print errors of the event engine on closed loops, each with constants fitted without its source."""
    for value in sorted({str(name(entry)) for same in rows.values() for entry in same}):
        times = fit.without(lambda entry: str(name(entry)) == value)  # noqa: B023
        entries = {group: entry_of(group, constants, [], None) for group, constants in times.items()}
        for line in replayed(rows, entries, lambda entry: str(name(entry)) == value, every, value):  # noqa: B023
            print(f"without {value}, event engine: {line}", flush=True)


@command
def main(
    folder: Sequence[Path],
    *,
    write: Annotated[Sequence[str] | None, "write constants: of all, or of these"] = None,
    leave_out: Annotated[Sequence[str], sorted(LEAVE), "what else to fit without, in turn"] = (),
    replay: Annotated[int | None, "run every Nth left-out closed loop by events"] = None,
    errors: Annotated[bool, "write errors by what the fit leaves out"] = False,
    test: Annotated[Path | None, "folder of rows that are in no fit"] = None,
) -> None:
    """Fit and print, and perhaps write."""
    rows = fitted_rows(folder)
    tested = read(test, tested=True) if test else {}
    print(f"shipped constants: {summary(errors_of(rows))}", flush=True)
    if tested:
        print(f"shipped constants, test: {summary(errors_of(tested))}", flush=True)
    fresh_tables()
    every = with_empty(rows)
    tested = {group: same for group, same in tested.items() if group in every}
    fit = Fit(every)
    models = fit.left_out_models()
    presets = set(write or {group.engine for group in every if group.engine not in EARLY})
    both = {what: left_out(every, fit, what, models) for what in ("model", *leave_out)}
    outside = {what: off for what, (off, _) in both.items()}
    unseen = layer_s_unseen(models, fit.without_models)
    worse = worse_than_alone(*both["model"])
    ships = to_ship(fit.times, shares_without(models), unseen, worse, fit.tell_of_prompts)
    ships |= {group: shipped(group) for group in every if group.engine not in presets}
    print(f"fitted, in the sample: {summary(errors_of(rows, fit.times))}")
    inside = errors_of(rows, ships)
    print(f"to ship, in the sample: {summary(inside)}", flush=True)
    if tested:
        print(f"to ship, test: {summary(errors_of(tested, ships))}", flush=True)
    if errors:
        outside.setdefault("place", left_out(every, fit, "place", models)[0])
        write_errors({what: outside[what] for what in ("model", "place")})
    if replay:
        replays(every, fit, LEAVE[(*leave_out, "model")[0]], replay)
    print("\n".join(table_of_groups(ships, rows, inside, outside["model"])))
    if write is not None:
        shipping = {group: ships[group] for group in sorted(every) if group.engine in presets}
        write_all(shipping, rows, outside["model"])
