"""The Python API of runs of weeks: ``mw.run``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from core.errors import InputError, UnknownNameError
from meshwright.questions.references import Reference
from meshwright.questions.training import ask
from meshwright.reports.plans import describe_plan, describe_setting
from meshwright.reports.runs import describe_planned_run
from planner.constraints import Constraints
from planner.headroom import headroom_share
from planner.prediction import simulate_plan
from planner.run_search import QUANTILES, RunRanking, planned_run, rank_runs
from planner.runs import PlannedRun
from planner.sizing import counts
from simulator.scenario import Scenario


@dataclass(frozen=True, eq=False)
class RunSimulation:
    """A plan's run of weeks: when it finishes, and where its time goes."""

    scenario: Scenario
    planned: PlannedRun

    @property
    def title(self) -> str:
        """The scenario's title; model and devices where it has none."""
        setting = self.scenario.setting
        return self.scenario.title or f"{setting.model.name} on {setting.cluster.devices:,} devices"

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``meshwright simulate --json`` prints for a scenario with ``run``."""
        described = describe_plan(self.planned.prediction, 0)
        return {
            "title": self.scenario.title,
            **describe_setting(self.scenario.setting),
            **described,
            "run": describe_planned_run(self.planned),
        }


def run(
    scenario: Reference | None = None,
    *,
    replications: int | None = None,
    engine: bool = False,
    progress: Callable[[float], None] | None = None,
    **arguments: Any,
) -> RunSimulation:
    """Simulate the run of weeks of a scenario's plan.

    Args:
        scenario: file, shipped name or mapping with ``run`` and ``plan``.
        replications: in place of the scenario's.
        engine: time saves on the event engine too, beside the step's own traffic.
        progress: called with the finished share.
        arguments: as for ``simulate``; they replace keys of the scenario.

    Raises:
        InputError: a missing ``run`` or ``plan``, a wrong key or value, or a run that cannot work.
    """
    checked, where = ask(scenario, arguments)
    if checked.run is None:
        raise InputError("key 'run' is missing; it states length, faults, recovery and checkpoints", where)
    return run_of(checked, where, replications, progress, engine)


def run_of(
    scenario: Scenario,
    where: str,
    replications: int | None = None,
    progress: Callable[[float], None] | None = None,
    engine: bool = False,
) -> RunSimulation:
    """The run of a checked scenario.

    Raises:
        InputError: as ``run``.
    """
    if scenario.plan is None or scenario.run is None:
        raise InputError("key 'plan' is missing; `meshwright plan --run` looks for one", where)
    prediction = simulate_plan(scenario.setting, scenario.plan).prediction
    constraints = Constraints.of(scenario.search.fix, scenario.search.limit)
    planned = planned_run(prediction, scenario.run, constraints, replications, progress, engine, partial=True)
    return RunSimulation(scenario, planned)


def plan_run(
    scenario: Reference | None = None,
    *,
    gpus: tuple[int, int] | None = None,
    quantile: str = "p50",
    top: int | None = None,
    progress: Callable[[float], None] | None = None,
    **arguments: Any,
) -> RunRanking:
    """Search plan, checkpoint mechanism, period, spares and size for a scenario's run of weeks.

    Args:
        scenario: file, shipped name or mapping with ``run``.
        gpus: least and most devices; default: the scenario's number.
        quantile: p50 or p90 of the wall time, which ranks.
        top: runs of each size.
        progress: called with the finished share.
        arguments: as for ``plan``.

    Raises:
        InputError: a missing ``run``, or a wrong key or value.
    """
    fix, limit = arguments.pop("fix", None) or {}, arguments.pop("limit", None) or {}
    if quantile not in QUANTILES:
        raise UnknownNameError("quantile", quantile, QUANTILES, "--quantile")
    checked, where = ask(scenario, arguments)
    if checked.run is None:
        raise InputError("key 'run' is missing; it states length, faults, recovery and checkpoints", where)
    if checked.run.question.days is not None and gpus is not None and gpus[0] != gpus[1]:
        raise InputError("sizes are compared for the same work: state tokens or steps", f"{where}: run.days")
    cluster = checked.setting.cluster
    sizes = counts(cluster, *gpus) if gpus else [cluster.devices]
    constraints = Constraints.of(checked.search.fix, checked.search.limit, f"{where}: search")
    constraints = constraints.overridden(Constraints.of(fix, limit))
    free = headroom_share(checked.search.headroom, checked.setting)
    rankings = []
    for size in sizes:
        setting = replace(checked.setting, cluster=cluster.resized(size))
        count = top or (checked.search.top if len(sizes) == 1 else 1)
        wanted = checked.search.objective, quantile, count, free
        rankings.append(rank_runs(setting, checked.run, constraints, *wanted, offload=checked.search.offload))
        if progress:
            progress(len(rankings) / len(sizes))
    title = checked.title or f"{checked.setting.model.name} on {cluster.name}"
    return RunRanking(title, checked.search.objective, quantile, rankings)
