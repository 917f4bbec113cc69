"""An epoch of a graph neural network over a whole graph."""

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
    from simulator.graphs.epoch import Epoch

FIGURES = MappingProxyType(
    {
        "GPUs": lambda report: f"{report['gpus']:,}",
        "GB exchanged": lambda report: f"{(report['boundary_bytes'] + report['replica_bytes']) / 1e9:,.2f}",
    }
)
"""Columns of a comparison, beside the epoch."""
NONE_YET = "an epoch over a graph has none yet"
NO_SEARCH = "there is no search of layouts of graphs"


@dataclass(frozen=True, eq=False, repr=False)
class GraphEpoch(Shown):
    """A predicted epoch."""

    epoch: Epoch

    def _tables(self) -> Sequence[Any]:
        return tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Keys and values for JSON (docs/json.md)."""
        from meshwright.reports.graphs import describe_epoch

        return describe_epoch(self.epoch)


def answer(question: Question, terms: AskOptions) -> GraphEpoch:
    """The predicted epoch.

    Raises:
        InputError: a wrong scenario.
        InfeasibleError: the graph does not fit the devices.
    """
    from simulator.graphs.epoch import predict_epoch
    from simulator.graphs.question import make_graph

    return GraphEpoch(predict_epoch(make_graph(*question)))


def tables(done: GraphEpoch) -> Sequence[Any]:
    """Figures of the epoch and its parts."""
    from meshwright.reports.graphs import epoch_tables

    return epoch_tables(done.epoch)


def best(question: Question) -> NoReturn:
    """No layout is searched.

    Raises:
        InputError: always.
    """
    raise InputError(NO_SEARCH, question[1])


def row(ask: str, question: Question) -> Mapping[str, Any]:
    """Figures of the epoch."""
    if ask == "plan":
        return {"problem": NO_SEARCH}
    return alone.row(answer, best)(ask, question)


JOB = Job(
    kind="graph",
    waits="epochs",
    planned_by="",
    answer=answer,
    tables=tables,
    files={},
    unread=dict.fromkeys(("requests", "trace", "html", "replications", "engine"), NONE_YET),
    inquiry=alone.inquiry(answer, best, FIGURES),
    row=row,
    export=alone.unexported("graph", "workload"),
)
