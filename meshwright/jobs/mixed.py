"""A training step of a plan whose stages or replicas lie on different groups of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from meshwright.jobs import alone, step
from meshwright.jobs.base import AskOptions, Job, Question
from meshwright.reports.units import significant
from meshwright.results import MixedSimulation

if TYPE_CHECKING:
    pass


def _short(report: Mapping[str, Any]) -> str:
    from meshwright.reports.mixed import shortage as told

    return told(dict(report))


FIGURES: Mapping[str, Callable[[Mapping[str, Any]], str]] = MappingProxyType(
    {
        "tok/s/GPU": lambda report: f"{report['tokens_per_s_per_gpu']:,.0f}",
        "$/Mtok": lambda report: significant(report["usd_per_million_tokens"]),
        "does not fit": _short,
    }
)
"""Columns of a comparison, beside the step."""


def answer(question: Question, terms: AskOptions) -> MixedSimulation:
    """The predicted step; a schedule without a closed form is run by the event engine.

    Raises:
        InputError: a wrong key, or a placement that does not fit the plan or the groups.
    """
    from meshwright.jobs.traces import is_folder
    from simulator.scenario import make_mixed
    from simulator.schedules import get_schedule
    from simulator.training.mixed import predict_mixed, simulate_mixed

    if terms.trace is not None:
        is_folder(terms.trace)
    data, where, folder = question
    mixed = make_mixed(data, where, folder)
    if mixed is None:
        raise InputError("a cluster of groups is needed", f"{where}: cluster")
    arguments = mixed.setting, mixed.plan, f"{where}: placement"
    closed = get_schedule(mixed.plan.schedule).has_closed_form
    events = simulate_mixed(*arguments) if terms.engine or not closed else None
    return MixedSimulation(mixed, predict_mixed(*arguments) if closed or events is None else events, events)


def tables(step_: MixedSimulation) -> Sequence[Any]:
    """Figures of the groups and of the step."""
    from meshwright.reports.mixed import mixed_tables

    return mixed_tables(step_.to_dict())


def write_trace(step_: MixedSimulation, path: Path) -> None:
    """Write the trace of the event engine."""
    if step_.engine is not None and step_.engine.timeline is not None:
        step.write_traces(step_.engine.timeline, path)


def shortage(step_: MixedSimulation) -> str:
    """The groups whose memory the plan exceeds."""
    from meshwright.reports.mixed import shortage as told

    return told(step_.to_dict())


def fastest(question: Question) -> MixedSimulation:
    """The fastest plan over the groups.

    Raises:
        InputError: a wrong key or value.
        InfeasibleError: no plan fits.
    """
    from meshwright.results import MixedSearchResult
    from planner.mixed import search_mixed

    ranked = MixedSearchResult(search_mixed(*question, top=1))
    ranked.check()
    return ranked.plans[0]


JOB = Job(
    kind="mixed",
    waits="the step",
    planned_by="train",
    answer=answer,
    tables=tables,
    files={"trace": write_trace},
    unread=step.JOB.unread,
    shortage=shortage,
    inquiry=alone.inquiry(answer, fastest, FIGURES),
    row=alone.row(answer, fastest),
    export=alone.unexported("mixed", "cluster"),
)
