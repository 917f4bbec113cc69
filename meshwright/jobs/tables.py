"""A batch of a recommendation model with embedding tables."""

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
    from simulator.tables.step import TablesStep

FIGURES = MappingProxyType(
    {
        "samples/s": lambda report: f"{report['rate']:,.0f}",
        "balance": lambda report: f"{report['balance']:.2f}",
    }
)
"""Columns of a comparison, beside the step."""
NONE_YET = "a batch of a recommendation model has none yet"
NO_SEARCH = "`simulate` chooses shards by itself (shards.kind: auto)"


@dataclass(frozen=True, eq=False, repr=False)
class TablesBatch(Shown):
    """A predicted batch."""

    step: TablesStep

    def _tables(self) -> Sequence[Any]:
        return tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON (docs/json.md)."""
        from meshwright.reports.recommendation import describe_tables

        return describe_tables(self.step)


def answer(question: Question, terms: AskOptions) -> TablesBatch:
    """The predicted batch.

    Raises:
        InputError: a wrong scenario.
        InfeasibleError: the tables do not fit the devices.
    """
    from simulator.tables.scenario import make_tables
    from simulator.tables.step import predict_step

    return TablesBatch(predict_step(make_tables(*question)))


def tables(done: TablesBatch) -> Sequence[Any]:
    """Figures of the batch and its parts."""
    from meshwright.reports.recommendation import tables_tables

    return tables_tables(done.step)


def best(question: Question) -> NoReturn:
    """Nothing is searched beyond shards.

    Raises:
        InputError: always.
    """
    raise InputError(NO_SEARCH, question[1])


def row(ask: str, question: Question) -> Mapping[str, Any]:
    """Figures of the batch."""
    if ask == "plan":
        return {"problem": NO_SEARCH}
    return alone.row(answer, best)(ask, question)


JOB = Job(
    kind="tables",
    waits="steps",
    planned_by="",
    answer=answer,
    tables=tables,
    files={},
    unread=dict.fromkeys(("requests", "trace", "html", "replications", "engine"), NONE_YET),
    inquiry=alone.inquiry(answer, best, FIGURES),
    row=row,
    export=alone.unexported("tables", "workload"),
)
