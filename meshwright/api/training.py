"""The Python API: ``import meshwright as mw``; arguments are named as the command line's flags.

A model, a cluster or a framework is a catalogue name, a path, a mapping or an object of ``mw.catalogue``.
Results are frozen dataclasses; ``to_dict`` gives what ``--json`` prints, ``columns`` gives lists for a table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from core.errors import InfeasibleError, InputError, MeshwrightError
from core.loading import Catalogue
from hwmodels.cluster import clusters
from hwmodels.device import devices
from meshwright.api.groups import on_groups, plan_over_groups
from meshwright.jobs import AskOptions, job_of
from meshwright.questions.arguments import (
    PostTrainingArguments,
    SearchArguments,
    SizeArguments,
    StepArguments,
    check_names,
)
from meshwright.questions.numbers import number
from meshwright.questions.references import ClusterReference, Reference
from meshwright.questions.scenarios import read_question, shipped_scenarios
from meshwright.questions.training import ask, check_trains, scenario_data, size_range
from meshwright.results import (
    Comparison,
    MixedSimulation,
    PlanReport,
    PlanSearch,
    StepSimulation,
)
from planner.execution import Execution
from planner.training.constraints import Constraints, asked_schedules
from planner.training.headroom import headroom_share
from planner.training.measured_runs import nothing_proven
from planner.training.measured_runs import proven as only_proven
from planner.training.scored_plans import ScoredPlans
from planner.training.search import SearchResult, search
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan
from simulator.recipes import recipes
from simulator.scenario import Scenario, Search, find, make_scenario
from simulator.schedules import schedules

if TYPE_CHECKING:
    from meshwright.api.answers import SizingAnswer
    from planner.training.refine import Refined

MOST_TOKENS = 1e18
MOST_DOLLARS = 1e15

__all__ = [
    "Catalogues",
    "Comparison",
    "Execution",
    "InfeasibleError",
    "InputError",
    "MeshwrightError",
    "MixedSimulation",
    "PlanReport",
    "PlanSearch",
    "StepSimulation",
    "catalogue",
    "plan",
    "simulate",
    "size",
    "whatif",
]


class Catalogues:
    """The catalogues; every catalogue has ``names()`` and ``get(name)``."""

    models: Catalogue[Any] = models
    clusters: Catalogue[Any] = clusters
    devices: Catalogue[Any] = devices
    frameworks: Catalogue[Any] = frameworks

    @property
    def schedules(self) -> list[str]:
        """Names of the pipeline schedules."""
        return sorted(schedules)

    @property
    def scenarios(self) -> dict[str, Path]:
        """The shipped scenario files by name."""
        return shipped_scenarios()


catalogue = Catalogues()


def plan(
    scenario: Reference | None = None,
    *,
    offload: bool = False,
    raw: bool = False,
    proven: bool = False,
    schedules: str = "offered",
    refine: int = 0,
    execution: Execution | None = None,
    every: bool = False,
    progress: Callable[[float], None] | None = None,
    refining: Callable[[float], None] | None = None,
    **arguments: Any,
) -> Any:
    """Search all plans for training a model on a cluster, and rank those that fit; or all deployments.

    Args:
        scenario: file, shipped name or mapping; ``arguments`` replace its keys.
        offload: try optimizer and gradients on the host, and on SSDs where nodes have them.
        proven: keep to what one measured run near the plan used together, and came near (``docs/search.md``).
        schedules: pipeline schedules to search: ``"offered"`` by the release, or ``"all"``.
        refine: number of best plans to time with the event engine too.
        execution: where the event engine runs, and the store of its results; by default all cores.
        raw, every: rank near duplicates too; keep every scored plan (``PlanSearch.scored``), 0.2 kB each.
        progress, refining: called with the finished share of the search and of the refinement.
        arguments: see ``SearchArguments``; of a serving scenario those of ``deploy``.

    Returns:
        The ranked plans; of a serving scenario a ``DeploymentSearch``, as ``deploy`` does; of a cluster of
        groups a ``MixedSearchResult``.

    Raises:
        InputError: a wrong or unknown argument, with its key path.
    """
    asks, widens = _planned_by(scenario), schedules != "offered"
    unread = {"offload": offload, "schedules": widens, "raw": raw, "proven": proven, "every": every}
    if asks == "rl" and scenario is not None:
        return _post_training(scenario, progress, arguments)
    if asks == "serve":
        from meshwright.deployments import deploy

        _refuse(unread, "serving plans do not read it")
        return deploy(scenario, refine=refine or None, execution=execution, progress=progress, **arguments)
    values = check_names(arguments, SearchArguments, inspect.signature(plan).parameters)
    if on_groups(scenario, arguments):
        _refuse({**unread, "refine": refine}, "a ranking of groups does not read it")
        return plan_over_groups(scenario, progress=progress, **arguments)
    fix, limit, recipe = (values.pop(name) for name in ("fix", "limit", "recipe"))
    question, where = ask(scenario, {**values, "recipe": recipe})
    constraints = _of_recipe(recipe).overridden(Constraints.of_search(question.search, where, fix, limit))
    constraints = replace(constraints, schedules=asked_schedules(schedules))
    used, all_plans = question.setting.cluster, ScoredPlans() if every else None
    result = search(
        question.setting,
        used.devices,
        only_proven(question.setting, constraints) if proven else constraints,
        question.search.objective,
        max(question.search.top, refine),
        progress,
        headroom_share(question.search.headroom, question.setting),
        alternatives=not raw,
        keep=all_plans.add if all_plans is not None else None,
        offload=offload or question.search.offload,
    )
    if proven and not len(result.plans):
        raise nothing_proven(question.setting)
    runs = _refined(result, refine, execution or Execution(), refining) if refine else ()
    return PlanSearch(result, runs, all_plans, _run_of(question))


def _post_training(
    scenario: Reference, progress: Callable[[float], None] | None, arguments: Mapping[str, Any]
) -> Any:
    from meshwright.jobs.rl import search
    from meshwright.questions.post_training import rl_question

    stated = check_names(arguments, PostTrainingArguments, inspect.signature(plan).parameters)
    staleness, top = stated.pop("staleness"), stated.pop("top")
    return search(rl_question(scenario, stated), staleness, top, progress)


def _run_of(scenario: Scenario) -> dict[str, Any] | None:
    """The run of weeks that a scenario asks about, as its file has it."""
    if scenario.run is None:
        return None
    return scenario.run.question.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _refuse(options: Mapping[str, object], reason: str) -> None:
    """Refuse the first option that is given."""
    if refused := next((name for name, value in options.items() if value), ""):
        raise InputError(reason, refused)


def _of_recipe(recipe: Reference | None) -> Constraints:
    """The plan fields that a recipe holds."""
    named = str(recipe) if isinstance(recipe, Path) else recipe
    fields = find(recipes, named, Path(), "recipe").plan if named is not None else {}
    return Constraints.of(fields, None, "recipe")


def _planned_by(scenario: Reference | None) -> str:
    """The question of ``plan`` that a scenario asks."""
    if not isinstance(scenario, str | Path | Mapping):
        return "train"
    question = (scenario, "", Path()) if isinstance(scenario, Mapping) else read_question(str(scenario))
    return job_of(*question).planned_by


def size(
    scenario: Reference | None = None,
    *,
    tokens: float | str,
    epochs: float = 1.0,
    days: float | None = None,
    budget: float | str | None = None,
    clusters: Sequence[ClusterReference] | str = (),
    cluster: ClusterReference | None = None,
    gpus: tuple[int, int] | str | None = None,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[SizeArguments],
) -> SizingAnswer:
    """Choose the number of GPUs for training: time and cost of all tokens over sizes and clusters.

    Args:
        scenario: file, shipped name or mapping; ``arguments`` replace its keys.
        tokens, epochs: tokens to train on (15e12, "15T"), and passes over them.
        days, budget: most days and dollars ("2M" is 2e6); the cheapest and the fastest size are chosen among
            those that meet both.
        clusters: clusters to compare, as a list or "dgx-h100,dgx-b200"; by default the scenario's.
        cluster: one cluster, in place of ``clusters``.
        gpus: minimum and maximum of devices, or "64..256"; by default from one node to the whole cluster.
        progress: called with the finished share.
        arguments: see ``SizeArguments``.

    Raises:
        InputError: a wrong or unknown argument, with its key path.
    """
    values = check_names(arguments, SizeArguments, inspect.signature(size).parameters)
    fix, limit = values.pop("fix"), values.pop("limit")
    tokens = number(tokens, "tokens") if isinstance(tokens, str) else tokens
    budget = number(budget, "budget") if isinstance(budget, str) else budget
    tokens *= epochs
    if budget is not None and not 0 < budget < MOST_DOLLARS:
        raise InputError(f"must be dollars above 0, found {budget:g}", "budget")
    if not 0 < tokens < MOST_TOKENS:
        raise InputError(f"must be tokens above 0, found {tokens:g}", "tokens")
    if days is not None and not days > 0:
        raise InputError(f"must be days above 0, found {days:g}", "days")
    from meshwright.api.answers import SizingAnswer
    from meshwright.result_base import as_answer
    from planner.training.sizing import counts, size_up

    if isinstance(gpus, str):
        gpus = size_range(gpus)

    settings, searched, where = [], Search(), ""
    for each in _compared(clusters, cluster):
        data, where, folder = scenario_data(scenario, {**values, "cluster": each, "gpus": 1}, "command line")
        check_trains(data, where, folder)
        # The plan of a saved or imported scenario has one size.
        question = make_scenario({key: value for key, value in data.items() if key != "plan"}, where, folder)
        have, searched = question.setting.cluster, question.search
        least, largest = gpus or (have.devices_per_node, have.devices_per_node * have.nodes)
        settings.append((question.setting, counts(have, least, largest)))
    constraints = Constraints.of_search(searched, where, fix, limit)
    sizing = size_up(
        settings,
        tokens,
        days,
        budget,
        constraints,
        searched.objective,
        lambda setting: headroom_share(searched.headroom, setting),
        progress,
        searched.offload,
    )
    return as_answer(SizingAnswer, sizing)


def _compared(
    clusters: Sequence[ClusterReference] | str, cluster: ClusterReference | None
) -> Sequence[ClusterReference | None]:
    """The clusters that a comparison of sizes is over; None for the scenario's.

    Raises:
        InputError: both arguments.
    """
    if cluster is not None and clusters:
        raise InputError("is given beside clusters", "cluster")
    if isinstance(clusters, str):
        return [name.strip() for name in clusters.split(",") if name.strip()]
    return list(clusters) or [cluster]


def _refined(
    result: SearchResult, count: int, execution: Execution, refining: Callable[[float], None] | None
) -> Sequence[Refined]:
    """Time the best plans on the event engine, in order; Ctrl-C ends early and keeps the finished runs."""
    from planner.training.refine import INTERRUPTED, Refined, refine

    plans = list(result.plans)[:count]
    runs: dict[int, Refined] = {}
    try:
        for number, run in refine(result.setting, plans, execution):
            runs[number] = run
            if refining:
                refining(len(runs) / len(plans))
    except KeyboardInterrupt:
        late = Refined(0.0, {}, 0.0, INTERRUPTED)
        return [runs.get(number, late) for number in range(len(plans))]
    return [runs[number] for number in sorted(runs)]


def simulate(
    scenario: Reference | None = None,
    *,
    plan: Mapping[str, Any] | Plan | None = None,
    engine: bool = False,
    detail: int = 100_000,
    replications: int | None = None,
    progress: Callable[[float], None] | None = None,
    notice: Callable[[str], None] | None = None,
    **arguments: Unpack[StepArguments],
) -> Any:
    """Predict what a scenario asks: the step of a plan, a run of weeks, or the requests of a deployment.

    Args:
        scenario: file, shipped name or mapping; ``arguments`` replace its keys.
        plan: fields of the plan; the framework fills the rest.
        engine: run the step on the event engine too; schedules without a closed form always do.
        detail: maximum number of kernels and collectives that the engine runs as separate tasks.
        replications: times that a run of weeks is drawn, in place of the scenario's; seeds of a deployment's
            run, of whose figures ``to_dict`` tells the medians.
        progress: called with the finished share.
        notice: called with a message when the answer takes long.
        arguments: see ``StepArguments``; ``fix`` replaces fields of the plan.

    Returns:
        By kind of scenario: ``StepSimulation``, ``MixedSimulation`` (a cluster of groups), ``RunSimulation``
        or ``ServingSimulation``; each has ``to_dict``.

    Raises:
        InputError: a wrong or unknown argument, a scenario without a plan, a step too long for the engine, or
            keys of two kinds of question.
    """
    values = check_names(arguments, StepArguments, inspect.signature(simulate).parameters)
    values["plan"] = plan.model_dump() if isinstance(plan, Plan) else plan
    question = scenario_data(scenario, values, "command line")
    named = str(scenario) if isinstance(scenario, str | Path) else ""
    terms = AskOptions(engine, detail, replications, named=named, progress=progress, notice=notice)
    return job_of(*question).answer(question, terms)


def whatif(
    scenario: Reference | None = None,
    variations: Mapping[str, Any] | None = None,
    *,
    plan: Mapping[str, Any] | Plan | None = None,
    engine: bool = False,
    replications: int | None = None,
    execution: Execution | None = None,
    **arguments: Unpack[StepArguments],
) -> Any:
    """Answered a scenario and its variations: what every variation changes.

    Args:
        scenario: file, shipped name, mapping or a ranking, whose first plan is meant; ``arguments`` replace
            its keys.
        variations: by name, as in a scenario file (``set``, ``sweep``, ``replan``).
        plan: fields of the plan; the framework fills the rest.
        engine: time every run with the event engine.
        replications: seeds of runs of deployments, the same for all variations; by default 3.
        execution: where variations run, and the store of their results; by default all cores.
        arguments: see ``StepArguments``; ``fix`` replaces fields of the plan, and holds in searches.

    Returns:
        By kind of scenario: ``Comparison`` of steps and runs, ``MixedComparison`` or ``ServingComparison``;
        each has ``to_dict`` and ``outcomes``, the base first.

    Raises:
        InputError: a wrong or unknown argument, or a key path that the scenario does not have.
    """
    values = check_names(arguments, StepArguments, inspect.signature(whatif).parameters)
    values |= {"plan": plan.model_dump() if isinstance(plan, Plan) else plan}
    values |= {"plans": True, "variations": variations}
    question = scenario_data(scenario, values, "whatif")
    inquiry = job_of(*question).inquiry(question, AskOptions(engine, replications=replications), execution)
    outcomes, work = inquiry.base()
    by_number = dict(inquiry.variations(work))
    outcomes += [by_number[number] for number in sorted(by_number)]
    return inquiry.comparison(outcomes)
