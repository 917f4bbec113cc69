"""Kinds of question that a scenario asks, told apart in this one place by what the scenario holds.

`meshwright.jobs` says how each is answered. A new kind is a record here and a job there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Protocol, cast

from pydantic import BaseModel

from core.errors import InputError, UnknownNameError
from core.loading import Catalogue, build
from core.records import record
from hwmodels.mixed import mixed_cluster
from simulator.plan import Plan
from simulator.scenario import CATALOGUES, Definition, Variation, look_up, training_definition


class CheckedScenario(Protocol):
    """The keys of a scenario file, whatever it asks."""

    @property
    def title(self) -> str: ...

    @property
    def variations(self) -> Mapping[str, Variation]: ...


OF_TRAINING = ("plan", "search", "framework", "recipe", "stragglers")
"""Keys of scenarios that train, beside those that every scenario has."""


@record(kw_only=True)
class QuestionKind:
    """One kind of question.

    Attributes:
        name: of the kind.
        words: what its scenarios ask about.
        keys: those that other kinds lack.
        above: the key whose fields may be named alone (``tp`` for ``plan.tensor``); empty: none.
        fields: names of those fields.
        searched: a scenario without ``above`` is planned before it is varied.
        workload: value of ``workload.kind`` that marks it; empty: another key does, or none.
        elsewhere: what takes its scenarios, for those that ask only about training steps.
        definition: the keys of a scenario.
        catalogues: of the keys that hold a name, a path or a mapping, where they are not those of training.
        checks: every key and value of a scenario, apart from how they fit together; by default builds the
            definition.
    """

    name: str
    words: str
    keys: tuple[str, ...]
    above: str = ""
    fields: Callable[[], Mapping[str, Any]] = dict
    searched: bool = False
    workload: str = ""
    elsewhere: str = ""
    definition: Callable[[Mapping[str, Any]], type[BaseModel]]
    catalogues: Callable[[], Mapping[str, Catalogue[Any]]] = lambda: CATALOGUES
    checks: Callable[[Mapping[str, Any], str, Path], CheckedScenario] | None = None

    def check(self, data: Mapping[str, Any], where: str, folder: Path) -> CheckedScenario:
        """The definition of a scenario, whose keys and values are right by themselves.

        Raises:
            InputError: they are not.
        """
        if self.checks is None:
            return cast("CheckedScenario", build(self.definition(data), data, where))
        return self.checks(data, where, folder)


def _step(data: Mapping[str, Any], where: str, folder: Path) -> Definition:
    return look_up(data, where, folder)[0]


def _mixed(data: Mapping[str, Any], where: str, folder: Path) -> Definition:
    mixed_cluster(data.get("cluster"), f"{where}: cluster", folder)
    return build(training_definition(data), data, where)


def _named(place: str) -> Callable[..., Any]:
    """A name of a module ("module:name"), which is imported when a scenario of the kind is read."""
    return lambda *_: resolve_name(place)


def _beside(**places: str) -> Callable[[], Mapping[str, Catalogue[Any]]]:
    """The catalogues of training, but for these keys."""
    return lambda: {**CATALOGUES, **{key: resolve_name(place) for key, place in places.items()}}


_trains = partial(
    QuestionKind,
    above="plan",
    fields=lambda: Plan.model_fields,
    searched=True,
    definition=training_definition,
)

KINDS: Mapping[str, QuestionKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            _trains(name="step", words="a training step", keys=OF_TRAINING, checks=_step),
            _trains(
                name="mixed",
                words="a step on groups of nodes",
                keys=(*OF_TRAINING, "placement"),
                elsewhere="only `simulate` and `whatif` take a cluster of groups",
                checks=_mixed,
            ),
            _trains(name="run", words="a run of weeks", keys=(*OF_TRAINING, "run"), checks=_step),
            QuestionKind(
                name="serving",
                words="serving",
                workload="serving",
                keys=("deployment", "seed"),
                above="deployment",
                fields=_named("simulator.serving.question.deployment:Pool.model_fields"),
                elsewhere="is a serving workload; `simulate`, `whatif` and `plan serve` take it",
                definition=_named("simulator.serving.scenario:ServingDefinition"),
                checks=lambda *scenario: resolve_name("simulator.serving.scenario:check_serving")(*scenario),
            ),
            QuestionKind(
                name="rl",
                words="a step of post-training",
                workload="rl",
                keys=("roles", "schedule", "seed", "framework", "weights"),
                elsewhere="is a step of post-training; `simulate` and `whatif` take it",
                definition=_named("simulator.rl.scenario:RlDefinition"),
                catalogues=_beside(framework="simulator.rl.frameworks:rl_frameworks"),
            ),
            QuestionKind(
                name="diffusion",
                words="images or videos by diffusion",
                workload="diffusion",
                keys=("layout", "addons", "library", "load", "replicas", "seed"),
                above="layout",
                fields=_named("simulator.diffusion.layout:Layout.model_fields"),
                elsewhere="makes images or videos; `simulate` and `whatif` take it",
                definition=_named("simulator.diffusion.scenario:DiffusionDefinition"),
                catalogues=_beside(
                    model="simulator.diffusion.models:diffusion_models",
                    library="simulator.diffusion.libraries:diffusion_libraries",
                ),
            ),
            QuestionKind(
                name="tables",
                words="a batch of a recommendation model",
                workload="tables",
                keys=("shards", "library"),
                above="shards",
                fields=_named("simulator.tables.shards:Shards.model_fields"),
                elsewhere="is a batch of a recommendation model; `simulate` and `whatif` take it",
                definition=_named("simulator.tables.scenario:TablesDefinition"),
                catalogues=_beside(
                    model="simulator.tables.models:tables_models",
                    library="simulator.tables.libraries:tables_libraries",
                ),
            ),
            QuestionKind(
                name="graph",
                words="an epoch over a graph",
                workload="graph",
                keys=("layout",),
                above="layout",
                fields=_named("simulator.graphs.question:GraphLayout.model_fields"),
                elsewhere="is an epoch over a graph; `simulate` and `whatif` take it",
                definition=_named("simulator.graphs.question:GraphDefinition"),
                catalogues=lambda: {"cluster": CATALOGUES["cluster"]},
            ),
            QuestionKind(
                name="frames",
                words="frames of simulators",
                workload="frames",
                keys=("environments", "sampler", "inference", "learner"),
                above="environments",
                fields=_named("simulator.frames.question:Simulators.model_fields"),
                elsewhere="steps simulators; `simulate` and `whatif` take it",
                definition=_named("simulator.frames.question:FramesDefinition"),
                catalogues=lambda: {
                    "cluster": CATALOGUES["cluster"],
                    "sampler": resolve_name("simulator.frames.samplers:samplers"),
                },
            ),
        )
    }
)
"""The kinds by name."""


def kind_of(data: Mapping[str, Any], where: str = "", folder: Path = Path()) -> QuestionKind:
    """The kind of question that a scenario asks.

    Args:
        data: keys and values of the scenario.
        where: its name in errors.
        folder: base of its relative paths.

    Raises:
        UnknownNameError: its workload is of no kind.
        InputError: it has keys of two kinds, which the message names.
    """
    workload = data.get("workload")
    named = workload.get("kind") if isinstance(workload, Mapping) else None
    marks = {f"workload.kind: {named}": kind for kind in KINDS.values() if named and kind.workload == named}
    if named is not None and not marks:
        raise UnknownNameError("kind of question", str(named), KINDS, f"{where}: workload.kind".lstrip(": "))
    if data.get("run") is not None:
        marks["run"] = KINDS["run"]
    if mixed_cluster(data.get("cluster"), f"{where}: cluster", folder) is not None:
        marks["cluster.groups"] = KINDS["mixed"]
    mine = next(iter(marks.values()), KINDS["step"])
    for kind in KINDS.values():
        for key in kind.keys:
            if data.get(key) is not None and key not in mine.keys:
                marks.setdefault(key, kind)
    foreign = {mark: kind for mark, kind in marks.items() if kind is not mine}
    foreign.pop("placement", None) if mine.above == "plan" else None
    if foreign:
        mark = next((mark for mark, kind in marks.items() if kind is mine), "workload")
        other, kind = next(iter(foreign.items()))
        raise InputError(
            f"has keys of two kinds of question: {mark!r} of {mine.words}, {other!r} of {kind.words}", where
        )
    return mine
