"""A batch of images or videos by a diffusion model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from core.errors import InputError
from meshwright.jobs import alone
from meshwright.jobs.base import AskOptions, Job, Question
from meshwright.shown import Shown

if TYPE_CHECKING:
    from meshwright.reports.diffusion import ServedLoad
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


def best(question: Question) -> NoReturn:
    """No layout is searched.

    Raises:
        InputError: always.
    """
    raise InputError("there is no search of layouts of diffusion models", question[1])


def row(ask: str, question: Question) -> Mapping[str, Any]:
    """Figures of the batch."""
    if ask == "plan":
        return {"problem": "there is no search of layouts of diffusion models"}
    return alone.row(answer, best)(ask, question)


JOB = Job(
    kind="diffusion",
    waits="steps",
    planned_by="",
    answer=answer,
    tables=tables,
    files={},
    unread=dict.fromkeys(("requests", "trace", "html", "replications", "engine"), NONE_YET),
    inquiry=alone.inquiry(answer, best, FIGURES),
    row=row,
    export=alone.unexported("diffusion", "workload"),
)
