"""A scenario and its variations whose runs do not depend on each other, nor on the plan of the base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from core.errors import InputError, MeshwrightError
from meshwright.jobs.base import AskOptions, Question
from meshwright.result_base import Result
from meshwright.variations.answer import Outcome, Remaining, inputs
from meshwright.variations.question import ScenarioRun, WhatIfQuestion
from planner.execution import Execution

Run = Callable[[ScenarioRun], dict[str, Any]]
"""Figures of one run; raises MeshwrightError. A function of a module, which other processes can import."""


@dataclass(frozen=True)
class EachRun:
    """Answers a question run by run.

    Attributes:
        question: base and variations.
        execution: where variations run; the base runs in this process.
        run: answers one.
        compared: result of a title, outcomes, and whether they were interrupted.
        base_run: answers the base with progress; by default as the others.
    """

    question: WhatIfQuestion
    execution: Execution
    run: Run
    compared: Callable[[str, Sequence[Outcome], bool], Result]
    base_run: Callable[[ScenarioRun, Callable[[float], None] | None], dict[str, Any]] | None = None

    @classmethod
    def of(
        cls,
        question: Question,
        terms: AskOptions,
        execution: Execution | None,
        run: Run,
        compared: Callable[[str, Sequence[Outcome], bool], Result],
        base_run: Callable[[ScenarioRun, Callable[[float], None] | None], dict[str, Any]] | None = None,
    ) -> EachRun:
        """Check a scenario and its variations.

        Raises:
            InputError: a wrong key or value.
        """
        data, where, folder = question
        inquiry_of = WhatIfQuestion.of(dict(data), where, folder, terms.typed)
        return cls(inquiry_of, execution or Execution(), run, compared, base_run)

    @property
    def notes(self) -> Sequence[str]:
        """See `Inquirer`."""
        return ()

    def base(self, progress: Callable[[float], None] | None = None) -> tuple[list[Outcome], Remaining]:
        """See `Inquirer`."""
        question = self.question
        runs = [each for each in (question.base, question.replanned_base) if each is not None]
        first = self.base_run or (lambda run, _: self.run(run))
        outcomes = [Outcome(each, first(each, progress)) for each in runs]
        return outcomes, Remaining(question.count(replan=False), question.count(replan=True), 0.0)

    def variations(self, work: Remaining) -> Iterator[tuple[int, Outcome]]:
        """See `Inquirer`."""
        runs = list(self.question.runs())
        calls = [(self.run, run) for run in runs]
        for number, report, _ in self.execution.run(_plain, calls, _inputs):
            yield number, Outcome(runs[number], **report)

    def comparison(self, outcomes: Sequence[Outcome], interrupted: bool = False) -> Result:
        """See `Inquirer`."""
        return self.compared(self.question.title, outcomes, interrupted)


@dataclass(frozen=True, eq=False, repr=False)
class StepsCompared(Result):
    """A step and its variations by their seconds, or the reason why they cannot run.

    Attributes:
        title: of the scenario.
        outcomes: the base first.
        interrupted: whether Ctrl-C ended the variations early.
        figures: further columns, in words, from a report.
    """

    title: str
    outcomes: Sequence[Outcome]
    interrupted: bool = False
    figures: Mapping[str, Callable[[Mapping[str, Any]], str]] = field(default_factory=dict)

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.tables import table
        from meshwright.reports.units import seconds, signed_percent
        from meshwright.variations.tables import change, failures
        from meshwright.variations.verdicts import steps_verdict

        base = self.outcomes[0].report or {}
        rows = [
            [
                outcome.run.label,
                seconds(report["step_time_s"]),
                "" if report is base else signed_percent(change(report, base, "step_time_s")),
                *(figure(report) for figure in self.figures.values()),
            ]
            for outcome in self.outcomes
            if (report := outcome.report) is not None
        ]
        failed = failures(self.outcomes)
        refusals = [table(("cannot be run", "because"), failed, left=2)] if failed else []
        verdict = [*filter(None, [steps_verdict(self.outcomes)])]
        return [*verdict, table(("variation", "step", "change", *self.figures), rows, self.title), *refusals]

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        return {
            f"{number}: {outcome.run.label}": {"step": outcome.report["step_time_s"]}
            for number, outcome in enumerate(self.outcomes)
            if outcome.report is not None
        }

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        from meshwright.variations.tables import figure_rows

        return figure_rows(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright whatif --json``."""
        from meshwright.variations.tables import change, describe_outcomes

        def changes(report: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
            return {"step_time_change": change(report, base, "step_time_s")}

        return describe_outcomes(self.title, self.outcomes, self.interrupted, changes)


def _plain(run: Run, variation: ScenarioRun) -> dict[str, Any]:
    """A run's outcome as plain data; a failure is an outcome too."""
    try:
        return {"report": run(variation)}
    except MeshwrightError as error:
        problem = error.problem if isinstance(error, InputError) else str(error)
        return {"problem": "; ".join(line.strip() for line in problem.splitlines() if line.strip())}


def _inputs(run: Run, variation: ScenarioRun) -> dict[str, Any]:
    """Inputs of a run's outcome."""
    return {**inputs(variation), **(run.keywords if isinstance(run, partial) else {})}
