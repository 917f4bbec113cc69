"""A base scenario and its named variations; every run is a complete scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.errors import InputError, UnknownNameError
from core.loading import build, read_mapping
from meshwright.questions.keys import Data, full_key, set_key
from planner.training.constraints import Constraints
from simulator.kinds import QuestionKind, kind_of
from simulator.plan import Plan
from simulator.scenario import Definition, Scenario, Variation, make_scenario
from simulator.schedules import get_schedule

BASE = "base"
REPLANNED_BASE = "base, re-planned"
SWEPT = "sweep"
"""Name of a variation that ``--sweep`` alone makes."""
HELD = ("engine", "weights", "kv", "clock_mhz", "power_cap_w")
"""Keys of a deployment that a search keeps."""


@dataclass(frozen=True)
class ScenarioRun:
    """One scenario to time.

    Attributes:
        name: of the variation, or ``BASE``.
        changed: values by key path.
        point: the values varied by a sweep.
        data: the scenario, without variations.
        replan: whether to search a plan instead of taking the one given.
        where: name of the source in errors.
        folder: base of relative paths.
    """

    name: str
    changed: Mapping[str, Any]
    point: Mapping[str, Any]
    data: Data
    replan: bool
    where: str
    folder: Path

    @property
    def label(self) -> str:
        """The variation's name, with the point where it sweeps."""
        point = ", ".join(
            f"{key.rpartition('.')[2]} {abbreviated(value)}" for key, value in self.point.items()
        )
        if point and self.name == SWEPT:
            return point
        return f"{self.name}: {point}" if point else self.name

    def scenario(self) -> Scenario:
        """The scenario with all references resolved and checked.

        Raises:
            InputError: a wrong reference, or a missing plan.
        """
        data = {key: value for key, value in self.data.items() if key != "plan" or not self.replan}
        scenario = make_scenario(data, self.where, self.folder)
        if scenario.plan is None and not self.replan:
            raise InputError("key 'plan' is missing", self.where)
        return scenario


def abbreviated(value: object) -> str:
    """A value of a scenario, abbreviated."""
    if isinstance(value, Mapping):
        return str(value.get("name", "..."))
    if isinstance(value, tuple):
        return "+".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_replicas(data: Data, keys: set[str]) -> Data:
    """Let the replicas of a plan follow from its degrees, where only the degrees change."""
    plan = data.get("plan")
    degrees = {"plan.tensor", "plan.pipeline", "plan.context", "gpus"}
    if not keys & degrees or "plan.data" in keys or not isinstance(plan, Mapping) or "data" not in plan:
        return data
    return {**data, "plan": {name: value for name, value in plan.items() if name != "data"}}


@dataclass(frozen=True)
class WhatIfQuestion:
    """A scenario file with variations.

    Attributes:
        title: of the scenario.
        data: the base scenario, without variations.
        variations: by name.
        where, folder: of the file, for errors and for relative paths.
        typed: whether the variations were typed on the command line.
    """

    title: str
    data: Data
    variations: Mapping[str, Variation]
    where: str
    folder: Path = field(default=Path())
    typed: bool = False

    @classmethod
    def read(cls, path: Path) -> WhatIfQuestion:
        """Read a scenario file, and check every key and value of its variations.

        Raises:
            InputError: unreadable, no variations in it, a wrong value, a variation of a variation that is
                not there.
            UnknownNameError: a key path that the scenario does not have (the nearest is offered).
        """
        return cls.of(read_mapping(path), str(path), path.parent.resolve())

    @classmethod
    def of(cls, data: Data, where: str, folder: Path, typed: bool = False) -> WhatIfQuestion:
        """Check every key and value of a scenario's mapping and of its variations.

        Args:
            data: the mapping, variations included.
            where: the mapping's name in errors.
            folder: the folder that paths in it are relative to.
            typed: whether the variations were typed on the command line.

        Raises:
            InputError: as ``read``.
        """
        written = kind_of(data, where, folder).check(data, where, folder)
        if not written.variations:
            raise InputError(
                "key 'variations' is missing; it names what to change, as --set and --sweep do", where
            )
        rest = {key: value for key, value in data.items() if key != "variations"}
        question = cls(written.title, rest, written.variations, where, folder, typed)
        for name in question.variations:
            question._check(name)
        return question

    @property
    def base(self) -> ScenarioRun:
        """The unchanged scenario; planned if it has no plan."""
        replan = self.kind.searched and self.kind.above not in self.data
        return ScenarioRun(BASE, {}, {}, self.data, replan, self.where, self.folder)

    @property
    def kind(self) -> QuestionKind:
        """The kind of question of its scenarios."""
        return kind_of(self.data, self.where, self.folder)

    @property
    def replanned_base(self) -> ScenarioRun | None:
        """The scenario re-planned, as the base of re-planned variations; None without such variations."""
        replans = any(each.replan for each in self.variations.values())
        if self.base.replan or not replans:
            return None
        return ScenarioRun(REPLANNED_BASE, {}, {}, self.data, True, self.where, self.folder)

    def with_plan(self, plan: Plan) -> WhatIfQuestion:
        """The same question with a plan; its replicas follow from the devices."""
        data = {**self.data, "plan": plan.model_dump(exclude={"data"}, exclude_defaults=True)}
        return replace(self, data=data)

    def count(self, replan: bool) -> int:
        """Runs of all variations with (or without) a search."""
        return sum(
            prod(len(values) for values in each.sweep.values())
            for each in self.variations.values()
            if each.replan == replan
        )

    def runs(self) -> Iterator[ScenarioRun]:
        """Every run of every variation, in the order of the file; the last key of a grid varies fastest."""
        for name, variation in self.variations.items():
            changes = self._overrides(name)
            data = self._changed(name, changes)
            for point in product(*variation.sweep.values()):
                values = dict(zip(variation.sweep, point, strict=True))
                yield ScenarioRun(
                    name=name,
                    changed={**changes, **values},
                    point=values,
                    data=self._changed(name, values, data),
                    replan=variation.replan,
                    where=self._place(name),
                    folder=self.folder,
                )

    def schedules(self) -> set[str]:
        """Pipeline schedules that plans of the runs may name."""
        plans = [self.data.get("plan") or {}]
        for name, variation in self.variations.items():
            plans += [self._changed(name, self._overrides(name)).get("plan") or {}]
            plans += [{"schedule": value} for value in variation.sweep.get("plan.schedule", [])]
        return {plan["schedule"] for plan in plans if "schedule" in plan}

    def _place(self, name: str) -> str:
        """Where a variation is written, for errors."""
        return "--set and --sweep" if self.typed else f"{self.where}: variations.{name}"

    def _changed(self, name: str, changes: Mapping[str, Any], data: Data | None = None) -> Data:
        changed = self.data if data is None else data
        for key, value in changes.items():
            changed = set_key(changed, key, value, self.folder, self._place(name))
        return _with_replicas(changed, {full_key(key, changed) for key in changes})

    def _overrides(self, name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """Values set by a variation, including the variations that it names."""
        where = f"{self._place(name)}.set"
        if name in above:
            raise InputError(f"names itself, by way of {' and '.join(above)}", where)
        changes: dict[str, Any] = {}
        for part in self.variations[name].set:
            if isinstance(part, Mapping):
                inner = part
            elif part not in self.variations:
                raise UnknownNameError("variation", part, self.variations, where)
            elif self.variations[part].sweep:
                raise InputError(f"{part!r} sweeps, and cannot be part of another variation", where)
            else:
                inner = self._overrides(part, (*above, name))
            # A key set again moves to the end: it may lie inside a value set in between.
            changes = {key: value for key, value in changes.items() if key not in inner} | dict(inner)
        return changes

    def _check(self, name: str) -> None:
        """Check every key and value of a variation; their combination is checked at run time."""
        variation, where = self.variations[name], self._place(name)
        data = self._changed(name, self._overrides(name))
        first = self._changed(name, {key: values[0] for key, values in variation.sweep.items()}, data)
        self._check_values(first, where)
        for key, values in variation.sweep.items():
            for value in values[1:]:
                self._check_values(self._changed(name, {key: value}, first), where)
        planned = [key for key in (*self._overrides(name), *variation.sweep) if key.startswith("plan.")]
        fixed = [key for key in (*self._overrides(name), *variation.sweep) if key.startswith("deployment.")]
        searched = [key for key in fixed if key.rpartition(".")[2] not in HELD]
        if variation.replan and searched:
            keys = ", ".join(f"deployment.{key}" for key in HELD)
            raise InputError(
                f"{searched[0]} has no effect on a deployment that is searched; a search keeps {keys}", where
            )
        if variation.replan and planned:
            instead = planned[0].replace("plan.", "search.fix.")
            raise InputError(f"{planned[0]} has no effect on a plan that is searched; set {instead}", where)

    def _check_values(self, data: Data, where: str) -> None:
        written = kind_of(data, where, self.folder).check(data, where, self.folder)
        if not isinstance(written, Definition):
            return
        Constraints.of(written.search.fix, written.search.limit, f"{where}: search")
        plan = written.plan or {}
        try:
            Plan.model_validate(plan)
        except ValidationError as error:
            # An error without a place is about several fields, which may fit together in another run.
            if any(problem["loc"] for problem in error.errors()):
                build(Plan, plan, f"{where}: plan")
        get_schedule(plan.get("schedule", "1f1b"), f"{where}: plan.schedule")
