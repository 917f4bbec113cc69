"""A batch of images or videos by a diffusion model."""

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
    from meshwright.reports.diffusion import ServedLoad
    from meshwright.variations.question import ScenarioRun
    from planner.execution import Execution
    from simulator.diffusion.request import DiffusionRequest

FIGURES = MappingProxyType(
    {
        "J each": lambda report: f"{report['joules']:,.0f}",
        "$ per 1,000": lambda report: f"{1e3 * report['usd']:,.2f}",
    }
)
"""Columns of a comparison, beside the latency."""
NONE_YET = "a batch of images or videos has none yet"


@dataclass(frozen=True, eq=False, repr=False)
class GeneratedBatch(Shown):
    """A predicted batch."""

    request: DiffusionRequest
    served: ServedLoad | None = None

    def _tables(self) -> Sequence[Any]:
        return tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON (docs/json.md)."""
        from meshwright.reports.diffusion import describe_diffusion

        return describe_diffusion(self.request, self.served)


def answer(question: Question, terms: AskOptions) -> GeneratedBatch:
    """The predicted batch.

    Raises:
        InputError: a wrong scenario.
        InfeasibleError: the model does not fit a device.
    """
    from meshwright.reports.diffusion import ServedLoad
    from simulator.diffusion.request import predict_request
    from simulator.diffusion.scenario import load_of, make_diffusion
    from simulator.diffusion.serving import run_load

    setting, asked = make_diffusion(*question), load_of(*question[:2])
    request = predict_request(setting)
    if asked is None:
        return GeneratedBatch(request)
    load, replicas, seed = asked
    return GeneratedBatch(request, ServedLoad(load, replicas, run_load(setting, load, replicas, seed)))


def tables(done: GeneratedBatch) -> Sequence[Any]:
    """Figures of the batch and its parts."""
    from meshwright.reports.diffusion import diffusion_tables

    return diffusion_tables(done.request, done.served)


def run_one(run: ScenarioRun) -> dict[str, Any]:
    """The figures of one variation.

    Raises:
        MeshwrightError: it cannot be run, or asks for a search.
    """
    if run.replan:
        raise InputError("there is no search of layouts of diffusion models", run.where)
    return answer((run.data, run.where, run.folder), AskOptions()).to_dict()


def inquiry(question: Question, terms: AskOptions, execution: Execution | None) -> EachRun:
    """The scenario and its variations."""
    return EachRun.of(question, terms, execution, run_one, partial(StepsCompared, figures=FIGURES))


def row(ask: str, question: Question) -> Mapping[str, Any]:
    """Figures of the batch."""
    from meshwright.jobs.rows import flat

    if ask == "plan":
        return {"problem": "there is no search of layouts of diffusion models"}
    return flat(answer(question, AskOptions()).to_dict())


def export(
    data: Mapping[str, Any], where: str, folder: Path, command: str, allow: Sequence[str] | None = None
) -> NoReturn:
    """No launcher of diffusion models is known.

    Raises:
        InputError: always.
    """
    raise InputError(KINDS["diffusion"].elsewhere, f"{where}: workload")


JOB = Job(
    kind="diffusion",
    waits="steps",
    planned_by="",
    answer=answer,
    tables=tables,
    files={},
    unread=dict.fromkeys(("requests", "trace", "html", "replications", "engine"), NONE_YET),
    inquiry=inquiry,
    row=row,
    export=export,
)
