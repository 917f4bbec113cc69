"""A run of weeks: the step of a plan, and what faults, checkpoints and recovery make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from meshwright.jobs import step
from meshwright.jobs.base import AskOptions, Job, Question
from meshwright.result_base import Result
from planner.runs import PlannedRun
from simulator.scenario import Scenario

if TYPE_CHECKING:
    from meshwright.pages.page import Page


@dataclass(frozen=True, eq=False, repr=False)
class RunSimulation(Result):
    """A plan's run of weeks: when it finishes, and where its time goes."""

    scenario: Scenario
    planned: PlannedRun

    @property
    def title(self) -> str:
        """The scenario's title; model and devices where it has none."""
        setting = self.scenario.setting
        return self.scenario.title or f"{setting.model.name} on {setting.cluster.devices:,} devices"

    def _tables(self) -> Sequence[Any]:
        return tables(self)

    def page(self) -> Page:
        """The page of the run."""
        from meshwright.pages.runs import run_page

        return run_page(self.title, self.planned)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        from meshwright.reports.flat import flat, of_plan

        report = self.to_dict()
        return [{**of_plan(report), **flat({"run": report["run"]})}]

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``meshwright simulate --json`` prints for a scenario with ``run``."""
        from meshwright.reports.plans import describe_plan, describe_setting
        from meshwright.reports.runs import describe_planned_run

        return {
            "title": self.scenario.title,
            **describe_setting(self.scenario.setting),
            **describe_plan(self.planned.prediction, 0),
            "run": describe_planned_run(self.planned),
        }


def answer(question: Question, terms: AskOptions, partial: bool = True) -> RunSimulation:
    """The simulated run; with ``partial`` Ctrl-C keeps the replications that were drawn.

    Raises:
        InputError: a wrong scenario, no plan, or a run that cannot work.
    """
    from planner.run_search import planned_run
    from planner.training.constraints import Constraints
    from planner.training.prediction import simulate_plan

    scenario, plan = step.read(question, terms)
    if scenario.run is None:
        raise InputError("key 'run' is missing", question[1])
    prediction = simulate_plan(scenario.setting, plan).prediction
    constraints = Constraints.of_search(scenario.search, question[1])
    planned = planned_run(
        prediction, scenario.run, constraints, terms.replications, terms.progress, terms.engine, partial
    )
    return RunSimulation(scenario, planned)


def tables(run: RunSimulation) -> Sequence[Any]:
    """Figures of the run, then those of its step."""
    from meshwright.reports.plans import whole_plan
    from meshwright.reports.runs import run_tables_of

    return [*run_tables_of(run.planned), *whole_plan(run.planned.prediction, run.title)]


def write_trace(run: RunSimulation, path: Path) -> None:
    """Write the trace of the first replication: one thread a state of the job over its wall time.

    Raises:
        InputError: the file cannot be written.
    """
    from simulator.engine.trace import write_threads
    from simulator.runs.events import replicate

    planned = run.planned
    drawn = replicate(planned.outcome.inputs, planned.case.request.question.seed, 0, traced=True)
    states = dict.fromkeys(["productive", *(state for state, _, _ in drawn.segments)])
    threads = {state: number for number, state in enumerate(states)}
    segments = (("run", state, state, start, end) for state, start, end in drawn.segments)
    write_threads(path, threads, segments, "replication 0")


def shortage(run: RunSimulation) -> str:
    """Why the run does not finish: memory, or faults."""
    from meshwright.reports.plans import shortage as told

    if short := told(run.planned.prediction):
        return short
    finished = any(each.done for each in run.planned.outcome.replications)
    return "" if finished else "no replication of the run finishes: faults outrun its recovery"


def interrupted(run: RunSimulation) -> str:
    """How many replications were drawn at Ctrl-C."""
    outcome = run.planned.outcome
    return f"{len(outcome.replications):,} replications were drawn" if outcome.interrupted else ""


def row(ask: str, question: Question) -> Mapping[str, Any]:
    """The best plan's figures, or those of the given plan and of its run."""
    from meshwright.reports.flat import flat
    from meshwright.reports.runs import describe_planned_run

    figures = step.row(ask, question)
    if ask == "plan" or "problem" in figures:
        return figures
    run = answer(question, AskOptions(), partial=False)
    return {**figures, **flat({"run": describe_planned_run(run.planned)})}


JOB = Job(
    kind="run",
    waits="the run",
    planned_by="train",
    answer=answer,
    tables=tables,
    files={"trace": write_trace},
    unread=step.NO_REQUESTS,
    shortage=shortage,
    interrupted=interrupted,
    inquiry=step.inquiry,
    row=row,
    export=step.export,
)
