"""Functions of jobs whose answers stand alone: variations run by run, a row of one answer, no launcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from core.errors import InputError
from meshwright.jobs.base import Answered, AskOptions, Question
from meshwright.jobs.each import EachRun, StepsCompared
from simulator.kinds import KINDS

if TYPE_CHECKING:
    from meshwright.variations.question import ScenarioRun
    from planner.execution import Execution

Answer = Callable[[Question, AskOptions], Answered]
Best = Callable[[Question], Answered]
"""The answer of the best plan; functions of modules, which other processes can import."""


def run_one(answer: Answer, best: Best, run: ScenarioRun) -> dict[str, Any]:
    """The figures of one variation, of the best plan where it asks for a search.

    Raises:
        MeshwrightError: it cannot be run.
    """
    question = run.data, run.where, run.folder
    return (best(question) if run.replan else answer(question, AskOptions())).to_dict()


def inquiry(
    answer: Answer, best: Best, figures: Mapping[str, Callable[[Mapping[str, Any]], str]]
) -> Callable[[Question, AskOptions, Execution | None], EachRun]:
    """A job's ``inquiry``; ``figures`` are columns of the comparison, beside the step."""

    def asked(question: Question, terms: AskOptions, execution: Execution | None) -> EachRun:
        compared = partial(StepsCompared, figures=figures)
        return EachRun.of(question, terms, execution, partial(run_one, answer, best), compared)

    return asked


def row(answer: Answer, best: Best) -> Callable[[str, Question], Mapping[str, Any]]:
    """A job's ``row``."""

    def figures(ask: str, question: Question) -> Mapping[str, Any]:
        from meshwright.jobs.rows import flat

        return flat((best(question) if ask == "plan" else answer(question, AskOptions())).to_dict())

    return figures


def unexported(kind: str, key: str) -> Callable[..., NoReturn]:
    """A job's ``export`` where no launcher takes its kind; ``key`` marks the kind in a scenario."""

    def refused(
        data: Mapping[str, Any], where: str, folder: Path, command: str, allow: Sequence[str] | None = None
    ) -> NoReturn:
        raise InputError(KINDS[kind].elsewhere, f"{where}: {key}")

    return refused
