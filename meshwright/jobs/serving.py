"""The requests of a deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from meshwright.jobs.base import RULES_OF_TRAINING, AskOptions, Job, Question
from meshwright.jobs.each import EachRun
from meshwright.result_base import Result

if TYPE_CHECKING:
    from meshwright.exporters.base import ExportQuestion
    from meshwright.pages.page import Page
    from meshwright.variations.answer import Outcome
    from meshwright.variations.question import ScenarioRun
    from planner.execution import Execution
    from simulator.serving.result import ServingResult

REQUESTS_A_SECOND = 20_000
"""Requests that one core simulates in a second, as `benchmarks.serving` prints it, on a busy machine."""
NOTICED_S = 5.0


@dataclass(frozen=True, eq=False, repr=False)
class ServingSimulation(Result):
    """The requests of a deployment: latencies, throughput, cost.

    Attributes:
        result: of the first seed; it holds every request.
        others: figures under further seeds.
    """

    result: ServingResult
    others: Sequence[Mapping[str, Any]] = ()

    @property
    def title(self) -> str:
        """The scenario's title."""
        return self.result.setting.title

    def _tables(self) -> Sequence[Any]:
        return tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``meshwright simulate --json`` prints for a serving scenario."""
        from meshwright.replications import over_seeds
        from meshwright.reports.serving_evidence import described, run_errors

        report = over_seeds([self.result.to_dict(), *self.others])
        return {**report, "expected_errors": described(run_errors(self.result))}

    def page(self) -> Page:
        """The page of the requests."""
        from meshwright.pages.serving import serving_page

        return serving_page(self.result)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """One row for each request, as ``--requests`` writes them."""
        from meshwright.reports.serving import request_rows

        names, *rows = request_rows(self.result)
        return [dict(zip(names, row, strict=True)) for row in rows]


@dataclass(frozen=True, eq=False, repr=False)
class ServingComparison(Result):
    """A deployment and its variations, or the reason why they cannot run."""

    title: str
    outcomes: Sequence[Outcome]
    interrupted: bool = False

    def _tables(self) -> Sequence[Any]:
        from meshwright.variations.serving_tables import comparison_tables

        return comparison_tables(self.title, self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright whatif --json``."""
        from meshwright.variations.serving_tables import serving_changes
        from meshwright.variations.tables import describe_outcomes

        return describe_outcomes(self.title, self.outcomes, self.interrupted, serving_changes)

    def page(self) -> Page:
        """The page of the variations."""
        from meshwright.pages.serving_variations import serving_variations_page

        return serving_variations_page(self.title, self.outcomes)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        from meshwright.variations.tables import figure_rows

        return figure_rows(self.to_dict())


def answer(question: Question, terms: AskOptions) -> ServingSimulation:
    """The simulated requests.

    Raises:
        InputError: a wrong scenario.
        InfeasibleError: the model does not fit.
    """
    from meshwright.replications import check_replications, seeded
    from simulator.serving.result import serve
    from simulator.serving.scenario import make_serving

    data, where, folder = question
    setting = make_serving(data, where, folder)
    if terms.notice is not None and (notice := run_notice(setting.serving.requests)):
        terms.notice(notice)
    first, *more = seeded(
        setting, 1 if terms.replications is None else check_replications(terms.replications)
    )
    result = serve(first, terms.progress, traced=terms.trace is not None, partial=True)
    others = [] if result.interrupted else [serve(each).to_dict() for each in more]
    return ServingSimulation(result, others)


def run_notice(requests: int) -> str | None:
    """Notice of a long run."""
    seconds = requests / REQUESTS_A_SECOND
    if seconds < NOTICED_S:
        return None
    return f"{requests:,} requests take about {seconds:,.0f} s; Ctrl-C shows those that have ended"


def tables(served: ServingSimulation) -> Sequence[Any]:
    """The verdict, then latencies, throughput and pools."""
    from meshwright.reports.served_verdict import served_headline
    from meshwright.reports.serving import seeds_table, serving_tables

    seeds = [seeds_table(served.to_dict())] if served.others else []
    return [served_headline(served.result), *seeds, *serving_tables(served.result)]


def write_requests(served: ServingSimulation, path: Path) -> None:
    """Write one row per request."""
    import csv
    import io

    from core.files import write_text
    from meshwright.reports.serving import request_rows

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(request_rows(served.result))
    write_text(path, text.getvalue())


def write_trace(served: ServingSimulation, path: Path) -> None:
    """Write the trace of the fleet."""
    from simulator.serving.trace import write_serving_trace

    write_serving_trace(path, served.result.fleet)


def interrupted(served: ServingSimulation) -> str:
    """How many requests had ended at Ctrl-C."""
    return f"{len(served.result.records):,} requests had ended" if served.result.interrupted else ""


def run_one(run: ScenarioRun, replications: int = 1) -> dict[str, Any]:
    """The figures of one variation.

    Raises:
        MeshwrightError: it cannot be run.
    """
    return base_run(run, None, replications)


def base_run(
    run: ScenarioRun, progress: Callable[[float], None] | None, replications: int = 1
) -> dict[str, Any]:
    """The figures of one run, with progress; raises as `run_one`."""
    from meshwright.variations.serving import run_serving

    return run_serving(run, progress, replications).report or {}


def inquiry(question: Question, terms: AskOptions, execution: Execution | None) -> EachRun:
    """The scenario and its variations, all under the same seeds."""
    from meshwright.replications import check_replications

    seeds = {"replications": check_replications(terms.replications)}
    runs, base = partial(run_one, **seeds), partial(base_run, **seeds)
    return EachRun.of(question, terms, execution, runs, ServingComparison, base)


def row(ask: str, question: Question) -> Mapping[str, Any]:
    """The best deployment's figures, or those of the given one's requests."""
    from meshwright.reports.flat import flat
    from simulator.serving.result import serve
    from simulator.serving.scenario import make_serving

    if ask == "plan":
        return _best_row(question[0])
    return flat(serve(make_serving(*question), None).to_dict())


def _best_row(data: Mapping[str, Any]) -> dict[str, Any]:
    """The best deployment."""
    from meshwright.deployments import deploy
    from meshwright.reports.flat import flat
    from meshwright.reports.serving_plans import describe_deployments
    from meshwright.reports.serving_shortfall import nearest_words

    search = deploy(dict(data), top=1, refine=0)
    if not search.search.plans:
        return {"problem": nearest_words(search.search)}
    best = describe_deployments(search.search, search.refined)["deployments"][0]
    best["deployment"] = search.search.plans[0].describe()
    return flat(best)


def export(question: Question, command: str, allow: Sequence[str] | None = None) -> ExportQuestion:
    """The deployment, for exporters.

    Raises:
        InputError: a wrong key or value, or rules to allow.
    """
    from meshwright.exporters.base import ExportQuestion
    from simulator.serving.scenario import make_serving

    if allow:
        raise InputError(RULES_OF_TRAINING, "--allow")
    setting = make_serving(*question)
    return ExportQuestion(setting.title or question[1], serving=setting, command=command)


JOB = Job(
    kind="serving",
    waits="requests",
    planned_by="serve",
    answer=answer,
    tables=tables,
    files={"requests": write_requests, "trace": write_trace},
    model=lambda served: (served.result.setting.model, 0),
    interrupted=interrupted,
    inquiry=inquiry,
    over_seeds=True,
    row=row,
    export=export,
)
