"""A training step of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InfeasibleError, InputError
from meshwright.jobs.base import AskOptions, Job, Question
from meshwright.results import Comparison, StepSimulation
from meshwright.variations.answer import Inquiry, Outcome
from meshwright.variations.question import WhatIfQuestion

if TYPE_CHECKING:
    from meshwright.exporters.base import ExportQuestion
    from planner.execution import Execution
    from simulator.engine import Timeline
    from simulator.plan import Plan
    from simulator.scenario import Scenario

NO_PLAN = "key 'plan' is missing; `meshwright plan --json` finds plans; export takes its output"
NO_REQUESTS = {"requests": "a training step has no requests"}


def read(question: Question, terms: AskOptions) -> tuple[Scenario, Plan]:
    """The checked scenario, and its plan.

    Raises:
        InputError: a wrong key or value, or no plan.
    """
    from simulator.scenario import make_scenario

    data, where, folder = question
    scenario = make_scenario(data, where, folder)
    fields = "fields of the plan are missing, as --fix tensor=8; `meshwright plan` looks for a plan"
    named = f"key 'plan' is missing; `meshwright plan {terms.named}` looks for one"
    return scenario, scenario.needed_plan(where, named if terms.named else fields)


def answer(question: Question, terms: AskOptions) -> StepSimulation:
    """The predicted step.

    Raises:
        InputError: a wrong scenario, or a step too long for the event engine.
    """
    from meshwright.jobs.traces import is_folder
    from planner.training.prediction import simulate_plan

    if terms.trace is not None:
        is_folder(terms.trace)
    scenario, plan = read(question, terms)
    run = simulate_plan(scenario.setting, plan, terms.engine, terms.detail, terms.progress, terms.notice)
    return StepSimulation(scenario, plan, run)


def tables(step: StepSimulation) -> Sequence[Any]:
    """The verdict, figures of the step, and those of the event engine where it ran."""
    from meshwright.reports.timeline import run_tables

    timeline, analytic = step.simulation.timeline, step.simulation.analytic_step_s
    engine = run_tables(timeline, analytic, step.traffic) if timeline is not None else []
    return [*step._tables(), *engine]


def write_trace(step: StepSimulation, path: Path) -> None:
    """Write the trace of the event engine; see `write_traces`."""
    if step.simulation.timeline is not None:
        write_traces(step.simulation.timeline, path)


def write_traces(timeline: Timeline, path: Path) -> None:
    """Write one file, or a folder with one file per rank.

    Raises:
        InputError: a file cannot be written.
    """
    from meshwright.jobs.traces import is_folder
    from simulator.engine.trace import write_trace as write

    if not is_folder(path):
        write(timeline, path)
        return
    for rank in range(timeline.ranks):
        write(timeline, path / f"rank-{rank}.json.gz", ranks=[rank])


def shortage(step: StepSimulation) -> str:
    """Why the step cannot run: memory."""
    from meshwright.reports.plans import shortage as told

    return told(step.simulation.prediction) or ""


class StepInquiry(Inquiry):
    """Answers a scenario and its variations; see `Inquirer`."""

    @property
    def notes(self) -> Sequence[str]:
        """See `Inquirer`."""
        if not self.open_form or self.asked_engine:
            return ()
        return (f"no closed form for {', '.join(self.open_form)}: every run is timed by the event engine",)

    def comparison(self, outcomes: Sequence[Outcome], interrupted: bool = False) -> Comparison:
        """See `Inquirer`."""
        return Comparison(self.question.title, outcomes, self.engine, interrupted)


def inquiry(question: Question, terms: AskOptions, execution: Execution | None) -> StepInquiry:
    """The scenario and its variations."""
    data, where, folder = question
    return StepInquiry(WhatIfQuestion.of(dict(data), where, folder, terms.typed), terms.engine, execution)


def row(ask: str, question: Question) -> Mapping[str, Any]:
    """The best plan's figures, or those of the given plan, by dotted name."""
    from meshwright.reports.flat import flat
    from meshwright.reports.plans import describe_plan
    from planner.training.prediction import Prediction, simulate_plan
    from planner.training.recommended import recommended
    from simulator.scenario import make_scenario

    scenario = make_scenario(*question)
    if ask == "plan":
        try:
            return flat(describe_plan(Prediction.of_search(recommended(scenario, question[1])), 0))
        except InfeasibleError as error:
            return {"problem": str(error)}
    if scenario.plan is None:
        return {"problem": "the scenario has no plan; ask: plan searches for one"}
    return flat(describe_plan(simulate_plan(scenario.setting, scenario.plan).prediction, 0))


def export(question: Question, command: str, allow: Sequence[str] | None = None) -> ExportQuestion:
    """The plan, for exporters; ``allow`` replaces the scenario's own.

    Raises:
        InputError: a wrong key or value, no plan, or a model that no launcher trains.
    """
    from meshwright.exporters.base import ExportQuestion
    from simulator.scenario import make_scenario

    data, where, folder = question
    scenario = make_scenario({**data, "allow": list(allow)} if allow else data, where, folder)
    plan, setting = scenario.needed_plan(where, NO_PLAN), scenario.setting
    if not setting.model.decoder_only:
        kind = "has" if setting.model.causal else "is"
        problem = f"{setting.model.name} {kind} an encoder; launch files train decoders"
        raise InputError(problem, f"{where}: model")
    title = (
        scenario.title or f"{setting.model.name} on {setting.cluster.devices} {setting.cluster.device.name}"
    )
    titled = title if plan.describe() in title else f"{title}: {plan.describe()}"
    return ExportQuestion(titled, scenario=scenario, plan=plan, command=command)


JOB = Job(
    kind="step",
    waits="the step",
    planned_by="train",
    answer=answer,
    tables=tables,
    files={"trace": write_trace},
    drawn_words="; its page and trace take several times as long",
    unread=NO_REQUESTS | {"replications": "only a scenario with run is drawn several times"},
    model=lambda step: (step.scenario.setting.model, step.scenario.setting.training.seq_len),
    shortage=shortage,
    inquiry=inquiry,
    row=row,
    export=export,
)
