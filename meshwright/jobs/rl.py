"""A step of post-training: rollouts of a serving engine and updates of a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from core.errors import InputError
from meshwright.jobs.base import AskOptions, Job, Question
from meshwright.jobs.each import EachRun, StepsCompared
from meshwright.shown import Shown
from simulator.kinds import KINDS

if TYPE_CHECKING:
    from meshwright.variations.question import ScenarioRun
    from planner.execution import Execution
    from simulator.rl.step import RlStep

FIGURES = MappingProxyType({"answers/h": lambda report: f"{report['answers_per_hour']:,.0f}"})
"""Columns of a comparison, beside the step."""
NONE_YET = "a step of post-training has none yet"


@dataclass(frozen=True, eq=False, repr=False)
class PostTraining(Shown):
    """A predicted step of post-training."""

    step: RlStep

    def _tables(self) -> Sequence[Any]:
        return tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON (docs/json.md)."""
        from meshwright.reports.post_training import describe_rl

        return describe_rl(self.step)


def answer(question: Question, terms: AskOptions) -> PostTraining:
    """The predicted step in the steady state.

    Raises:
        InputError: a wrong scenario.
        InfeasibleError: the rollout engine does not fit.
    """
    from simulator.rl.scenario import make_rl
    from simulator.rl.step import predict_rl

    return PostTraining(predict_rl(make_rl(*question)))


def tables(done: PostTraining) -> Sequence[Any]:
    """Figures of the step and its phases."""
    from meshwright.reports.post_training import rl_tables

    return rl_tables(done.step)


def run_one(run: ScenarioRun) -> dict[str, Any]:
    """The figures of one variation.

    Raises:
        MeshwrightError: it cannot be run, or asks for a search.
    """
    if run.replan:
        raise InputError("there is no search of post-training", run.where)
    return answer((run.data, run.where, run.folder), AskOptions()).to_dict()


def inquiry(question: Question, terms: AskOptions, execution: Execution | None) -> EachRun:
    """The scenario and its variations."""
    return EachRun.of(question, terms, execution, run_one, partial(StepsCompared, figures=FIGURES))


def row(ask: str, question: Question) -> Mapping[str, Any]:
    """Figures of the step."""
    from meshwright.jobs.rows import flat

    if ask == "plan":
        return {"problem": "there is no search of post-training"}
    return flat(answer(question, AskOptions()).to_dict())


def export(
    data: Mapping[str, Any], where: str, folder: Path, command: str, allow: Sequence[str] | None = None
) -> NoReturn:
    """No launcher of post-training is known.

    Raises:
        InputError: always.
    """
    raise InputError(KINDS["rl"].elsewhere, f"{where}: workload")


JOB = Job(
    kind="rl",
    waits="rollouts",
    planned_by="",
    answer=answer,
    tables=tables,
    files={},
    unread=dict.fromkeys(("requests", "trace", "html", "replications", "engine"), NONE_YET),
    inquiry=inquiry,
    row=row,
    export=export,
)
