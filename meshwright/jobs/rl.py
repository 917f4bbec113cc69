"""A step of post-training: rollouts of a serving engine and updates of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from meshwright.jobs import alone
from meshwright.jobs.base import RULES_OF_TRAINING, AskOptions, Job, Question
from meshwright.result_base import Result

if TYPE_CHECKING:
    from meshwright.exporters.base import ExportQuestion
    from meshwright.pages.page import Page
    from planner.rl import RlSearch
    from simulator.rl.step import RlStep

FIGURES = MappingProxyType({"answers/h": lambda report: f"{report['answers_per_hour']:,.0f}"})
"""Columns of a comparison, beside the step."""
TOP = 5
"""Plans shown."""
MOST_STALE = 1000
TRACED = 3
"""Steps that a trace holds."""
NONE_YET = "a step of post-training has none yet"


@dataclass(frozen=True, eq=False, repr=False)
class PostTraining(Result):
    """A predicted step of post-training."""

    step: RlStep

    def _tables(self) -> Sequence[Any]:
        return tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON (docs/json.md)."""
        from meshwright.reports.post_training import describe_rl

        return describe_rl(self.step)

    def page(self) -> Page:
        """The page of the step."""
        from meshwright.pages.post_training import rl_page

        return rl_page(self.step)


@dataclass(frozen=True, eq=False, repr=False)
class PostTrainingSearch(Result):
    """Ranked plans of post-training, most answers a second first."""

    search: RlSearch

    @property
    def plans(self) -> list[PostTraining]:
        """The steps of the plans."""
        return [PostTraining(plan.step) for plan in self.search.plans]

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.post_training import ranked_rl

        return ranked_rl([plan.step for plan in self.search.plans], self.search.more)

    @property
    def title(self) -> str:
        """The model that is post-trained."""
        return f"Post-training of {self.search.plans[0].step.setting.model.name}"

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        return {
            f"plan {rank}": {"step": plan.step.timing.seconds}
            for rank, plan in enumerate(self.search.plans, start=1)
        }

    def page(self) -> Page:
        """The page of the ranking, with the first plan's roles over a step."""
        from meshwright.pages.post_training import rl_plans_page

        return rl_plans_page([plan.step for plan in self.search.plans], self._tables())

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        from meshwright.reports.flat import flat

        return [flat(plan) for plan in self.to_dict()["plans"]]

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON (docs/json.md)."""
        return {
            "one_node_more": dict(self.search.more),
            "refused": dict(self.search.refused),
            "plans": [{"rank": rank, **plan.to_dict()} for rank, plan in enumerate(self.plans, start=1)],
        }


def search(
    question: Question,
    staleness: float | None = None,
    top: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> PostTrainingSearch:
    """Rank plans of post-training: roles on shared devices or apart, devices by role, layouts of either side.

    Args:
        question: keys of a scenario, its name in errors, and the folder of its paths.
        staleness: steps by which the weights of an answer may be older; by default what the scenario's
            schedule allows.
        top: plans to keep, 5 by default.
        progress: called with the finished share.

    Raises:
        InputError: a wrong key or value.
        InfeasibleError: no plan fits.
    """
    from planner.rl import search_rl

    if staleness is not None and not 0 <= staleness <= MOST_STALE:
        raise InputError(f"must be 0 to {MOST_STALE:,} steps, found {staleness:g}", "--staleness")
    if top is not None and top < 1:
        raise InputError(f"must be 1 or more, found {top}", "--top")
    old = _allowed(question[0]) if staleness is None else staleness
    return PostTrainingSearch(search_rl(*question, old, top or TOP, progress))


def _allowed(data: Mapping[str, Any]) -> float:
    """Steps by which a scenario's own schedule lets answers be old."""
    schedule = data.get("schedule")
    kind = schedule.get("kind") if isinstance(schedule, Mapping) else None
    if kind == "asynchronous":
        return float(schedule.get("staleness", 1.0))  # type: ignore[union-attr]
    return 1.0 if kind == "one-step-off" else 0.0


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


def best(question: Question) -> PostTraining:
    """The plan with most answers a second, under what the scenario's schedule allows.

    Raises:
        MeshwrightError: a wrong scenario, or no plan fits.
    """
    from planner.rl import search_rl

    return PostTraining(search_rl(*question, staleness=_allowed(question[0]), top=1).plans[0].step)


def write_trace(done: PostTraining, path: Path) -> None:
    """Write the trace of some steps of the steady state: one thread a role.

    Raises:
        InputError: the file cannot be written.
    """
    from simulator.engine.trace import write_threads
    from simulator.rl.step import step_lanes

    length, segments = done.step.timing.seconds, step_lanes(done.step)
    threads = {lane: number for number, lane in enumerate(dict.fromkeys(each.lane for each in segments))}
    written = (
        ("rl", each.phase, each.lane, number * length + each.start, number * length + each.end)
        for number in range(TRACED)
        for each in segments
        if each.phase != "idle"
    )
    write_threads(path, threads, written)


def exported(question: Question, command: str, allow: Sequence[str] | None = None) -> ExportQuestion:
    """The question of exporters.

    Raises:
        InputError: a wrong scenario, or rules to allow.
        InfeasibleError: the rollout engine does not fit.
    """
    from meshwright.exporters.base import ExportQuestion
    from simulator.rl.scenario import make_rl

    if allow:
        raise InputError(RULES_OF_TRAINING, "--allow")
    setting = make_rl(*question)
    return ExportQuestion(setting.title or question[1], rl=setting, command=command)


JOB = Job(
    kind="rl",
    waits="rollouts",
    planned_by="rl",
    answer=answer,
    tables=tables,
    files={"trace": write_trace},
    unread=dict.fromkeys(("requests", "replications", "engine"), NONE_YET),
    inquiry=alone.inquiry(answer, best, FIGURES),
    row=alone.row(answer, best),
    export=exported,
)
