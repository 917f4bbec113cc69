"""Timing of a question's runs, one by one or on all cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from core.errors import InputError, MeshwrightError
from meshwright.reports.plans import describe_plan, describe_setting
from meshwright.variations.question import ScenarioRun, WhatIfQuestion
from planner.execution import Execution
from planner.store import file_digests
from planner.training.constraints import Constraints
from planner.training.prediction import Prediction, simulate_plan
from planner.training.recommended import recommended
from simulator.plan import Plan
from simulator.schedules import get_schedule
from simulator.setting import Setting

LONG_S = 600.0
"""Estimated seconds from which a question needs confirmation."""

DETAIL = 100_000
"""Maximum number of kernels and collectives for which the engine breaks a step down."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run: figures under the keys of ``simulate --json``, or the reason why it failed."""

    run: ScenarioRun
    report: dict[str, Any] | None = None
    problem: str = ""


@dataclass(frozen=True)
class Remaining:
    """Remaining runs after the base, and their estimated time."""

    same_plan: int
    replanned: int
    seconds: float

    @property
    def runs(self) -> int:
        """All runs."""
        return self.same_plan + self.replanned


class Inquiry:
    """Answers a question: the base first, then, with a time estimate, the variations.

    Args:
        question: the base and its variations.
        engine: time every run with the event engine; done anyway where a schedule has no closed form.
        execution: where variations run; the base runs in this process.
    """

    def __init__(
        self, question: WhatIfQuestion, engine: bool = False, execution: Execution | None = None
    ) -> None:
        self.question, self.execution = question, execution or Execution()
        self.open_form = sorted(
            name for name in question.schedules() if not get_schedule(name).has_closed_form
        )
        self.asked_engine = engine
        self.engine = engine or bool(self.open_form)

    def base(self, progress: Callable[[float], None] | None = None) -> tuple[list[Outcome], Remaining]:
        """Time the base, and re-plan it where variations are re-planned.

        Args:
            progress: not called: a step is timed at once.

        Raises:
            MeshwrightError: the base cannot be run.
        """
        started = time.perf_counter()
        outcome, plan = _answer(self.question.base, self.engine)
        first = time.perf_counter() - started
        outcomes, again = [outcome], first
        if self.question.base.replan:
            self.question = self.question.with_plan(plan)
            started = time.perf_counter()
            _answer(self.question.base, self.engine)
            first, again = time.perf_counter() - started, first
        elif replanned := self.question.replanned_base:
            started = time.perf_counter()
            outcomes.append(answer(replanned, self.engine))
            again = time.perf_counter() - started
        same, new = self.question.count(replan=False), self.question.count(replan=True)
        return outcomes, Remaining(same, new, same * first + new * again)

    def variations(self, work: Remaining) -> Iterator[tuple[int, Outcome]]:
        """Time every variation.

        Yields:
            The number of a run, in the order of the file, and its outcome; in the order in which runs end.
        """
        runs = list(self.question.runs())
        calls = [(run, self.engine) for run in runs]
        for number, answer, _ in self.execution.run(_plain_answer, calls, _inputs, work.seconds):
            yield number, Outcome(runs[number], **answer)


def answer(run: ScenarioRun, engine: bool) -> Outcome:
    """Time one run; a failure is an outcome too."""
    try:
        return _answer(run, engine)[0]
    except MeshwrightError as error:
        problem = error.problem if isinstance(error, InputError) else str(error)
        lines = (line.strip() for line in problem.splitlines())
        return Outcome(run, problem="; ".join(line for line in lines if line))


def _plain_answer(run: ScenarioRun, engine: bool) -> dict[str, Any]:
    """A run's outcome as plain data."""
    outcome = answer(run, engine)
    return {"report": outcome.report, "problem": outcome.problem}


def _inputs(run: ScenarioRun, engine: bool) -> dict[str, Any]:
    """Inputs of a run's outcome."""
    return {**inputs(run), "engine": engine}


def inputs(run: ScenarioRun) -> dict[str, Any]:
    """Inputs of a run: its scenario, and the files that it names."""
    files = file_digests(run.data, run.folder)
    return {"ask": "whatif", "scenario": run.data, "replan": run.replan, "files": files}


def _answer(run: ScenarioRun, engine: bool) -> tuple[Outcome, Plan]:
    scenario = run.scenario()
    plan = scenario.plan if scenario.plan is not None else recommended(scenario, run.where).plans.plan(0)
    prediction = _predict(scenario.setting, plan, engine)
    report = {**describe_setting(scenario.setting), **describe_plan(prediction, 0)}
    if scenario.run is not None:
        from meshwright.reports.runs import describe_planned_run
        from planner.run_search import planned_run

        constraints = Constraints.of_search(scenario.search, run.where)
        report["run"] = describe_planned_run(planned_run(prediction, scenario.run, constraints))
    return Outcome(run, report), plan


def _predict(setting: Setting, plan: Plan, engine: bool) -> Prediction:
    simulation = simulate_plan(setting, plan, engine, DETAIL)
    if simulation.timeline is None:
        return simulation.prediction
    return Prediction.of_timeline(setting, plan, simulation.timeline)
