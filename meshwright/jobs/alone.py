"""Functions of jobs whose answers stand alone: variations run by run, a row of one answer, no launcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from core.errors import InputError
from meshwright.jobs.base import Answered, AskOptions, Job, Question
from meshwright.jobs.each import EachRun, StepsCompared
from meshwright.result_base import Result
from simulator.kinds import KINDS

if TYPE_CHECKING:
    from meshwright.variations.question import ScenarioRun
    from planner.execution import Execution

Answer = Callable[[Question, AskOptions], Answered]
Best = Callable[[Question], Answered]
"""The answer of the best plan; functions of modules, which other processes can import."""
Figures = Mapping[str, Callable[[Mapping[str, Any]], str]]
"""Columns of a comparison, beside the step, from a report."""


@dataclass(frozen=True, eq=False, repr=False)
class LoneAnswer(Result):
    """A prediction with how it is told.

    Attributes:
        result: of the simulator.
        describe: its keys and values for JSON (docs/json.md).
        draw: its tables.
    """

    result: Any
    describe: Callable[[Any], dict[str, Any]]
    draw: Callable[[Any], Sequence[Any]]

    def _tables(self) -> Sequence[Any]:
        return self.draw(self.result)

    @property
    def title(self) -> str:
        """The scenario's title; the model where it has none."""
        report = self.to_dict()
        return report["title"] or self._model_name(report)

    @staticmethod
    def _model_name(report: Mapping[str, Any]) -> str:
        model = report["model"]
        return model if isinstance(model, str) else model["name"]

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        report = self.to_dict()
        parts: Mapping[str, Any] = report["parts_s"]
        # Parts of several streams run beside each other: a bar each, whose sum no step has to have.
        streams = {part: times for part, times in parts.items() if isinstance(times, Mapping)}
        if not streams:
            return {self._model_name(report): parts}
        return {
            part.replace("_", " "): {name: time for name, time in times.items() if time}
            for part, times in streams.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON."""
        return self.describe(self.result)


def unsearched(why: str, question: Question) -> NoReturn:
    """A job's best plan where nothing is searched; ``why`` says so.

    Raises:
        InputError: always.
    """
    raise InputError(why, question[1])


def job(kind: str, waits: str, answer: Answer, figures: Figures, no_search: str) -> Job:
    """The job of a kind without search, files and launcher.

    Args:
        kind: its name; its words say what has no such file.
        waits: word for what progress bars count.
        answer: of a question; a function of a module.
        figures: further columns of comparisons.
        no_search: why nothing is searched.
    """
    best = partial(unsearched, no_search)
    answered = row(answer, best)
    none_yet = f"{KINDS[kind].words} has none yet"

    def figures_of(ask: str, question: Question) -> Mapping[str, Any]:
        return {"problem": no_search} if ask == "plan" else answered(ask, question)

    return Job(
        kind=kind,
        waits=waits,
        planned_by="",
        answer=answer,
        tables=lambda done: done._tables(),
        files={},
        unread=dict.fromkeys(("requests", "trace", "replications", "engine"), none_yet),
        inquiry=inquiry(answer, best, figures),
        row=figures_of,
        export=unexported(kind, "workload"),
    )


def run_one(answer: Answer, best: Best, run: ScenarioRun) -> dict[str, Any]:
    """The figures of one variation, of the best plan where it asks for a search.

    Raises:
        MeshwrightError: it cannot be run.
    """
    question = run.data, run.where, run.folder
    return (best(question) if run.replan else answer(question, AskOptions())).to_dict()


def inquiry(
    answer: Answer, best: Best, figures: Figures
) -> Callable[[Question, AskOptions, Execution | None], EachRun]:
    """A job's ``inquiry``; ``figures`` are columns of the comparison, beside the step."""

    def inquired(question: Question, terms: AskOptions, execution: Execution | None) -> EachRun:
        compared = partial(StepsCompared, figures=figures)
        return EachRun.of(question, terms, execution, partial(run_one, answer, best), compared)

    return inquired


def row(answer: Answer, best: Best) -> Callable[[str, Question], Mapping[str, Any]]:
    """A job's ``row``."""

    def figures(ask: str, question: Question) -> Mapping[str, Any]:
        from meshwright.reports.flat import flat

        return flat((best(question) if ask == "plan" else answer(question, AskOptions())).to_dict())

    return figures


def unexported(kind: str, key: str) -> Callable[..., NoReturn]:
    """A job's ``export`` where no launcher takes its kind; ``key`` marks the kind in a scenario."""

    def refused(question: Question, command: str, allow: Sequence[str] | None = None) -> NoReturn:
        raise InputError(KINDS[kind].elsewhere, f"{question[1]}: {key}")

    return refused
