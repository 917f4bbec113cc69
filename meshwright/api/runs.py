"""The Python API of runs of weeks: ``mw.run``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InfeasibleError, InputError, UnknownNameError
from meshwright.jobs.base import AskOptions
from meshwright.jobs.run import RunSimulation, answer
from meshwright.questions.references import Reference
from meshwright.questions.training import ask, scenario_data
from meshwright.reports.flat import flat
from meshwright.result_base import Result
from planner.run_search import QUANTILES, RunRanking, rank_runs
from planner.training.constraints import Constraints
from planner.training.headroom import headroom_share
from planner.training.sizing import counts

if TYPE_CHECKING:
    from meshwright.pages.page import Page


class RunRankingAnswer(Result, RunRanking):
    """The answer of ``mw.plan_run``; see `planner.run_search.RunRanking`."""

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.run_search import run_search_tables

        return run_search_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright plan train --run --json``."""
        from meshwright.reports.run_search import describe_run_search

        return describe_run_search(self)

    def page(self) -> Page:
        """Dollars against days.

        Raises:
            InfeasibleError: no run works.
        """
        from meshwright.pages.answers import runs_page

        if self.best is None:
            raise InfeasibleError(f"no run works: {self.sizes[0].problem}")
        return runs_page(self, self._tables())

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        sizes = self.to_dict()["sizes"]
        return [
            {"gpus": size["gpus"], **flat(run)}
            for size in sizes
            for run in size.get("plans", [{"problem": size.get("problem")}])
        ]


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
    question = scenario_data(scenario, arguments, "command line")
    data, where, _ = question
    if data.get("run") is None:
        raise InputError("key 'run' is missing; it states length, faults, recovery and checkpoints", where)
    named = str(scenario) if isinstance(scenario, str | Path) else ""
    return answer(question, AskOptions(engine, replications=replications, named=named, progress=progress))


def plan_run(
    scenario: Reference | None = None,
    *,
    gpus: tuple[int, int] | None = None,
    quantile: str = "p50",
    top: int | None = None,
    progress: Callable[[float], None] | None = None,
    **arguments: Any,
) -> RunRankingAnswer:
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
    fix, limit = arguments.pop("fix", None), arguments.pop("limit", None)
    if quantile not in QUANTILES:
        raise UnknownNameError("quantile", quantile, QUANTILES, "--quantile")
    asks, where = ask(scenario, arguments)
    if asks.run is None:
        raise InputError("key 'run' is missing; it states length, faults, recovery and checkpoints", where)
    if asks.run.question.days is not None and gpus is not None and gpus[0] != gpus[1]:
        raise InputError("sizes are compared for the same work: state tokens or steps", f"{where}: run.days")
    cluster = asks.setting.cluster
    sizes = counts(cluster, *gpus) if gpus else [cluster.devices]
    constraints = Constraints.of_search(asks.search, where, fix, limit)
    free = headroom_share(asks.search.headroom, asks.setting)
    rankings = []
    for size in sizes:
        setting = replace(asks.setting, cluster=cluster.resized(size))
        count = top or (asks.search.top if len(sizes) == 1 else 1)
        terms = asks.search.objective, quantile, count, free
        rankings.append(rank_runs(setting, asks.run, constraints, *terms, offload=asks.search.offload))
        if progress:
            progress(len(rankings) / len(sizes))
    title = asks.title or f"{asks.setting.model.name} on {cluster.name}"
    return RunRankingAnswer(title, asks.search.objective, quantile, rankings)
