"""An epoch of a graph neural network over a whole graph."""

from __future__ import annotations

from types import MappingProxyType

from meshwright.jobs import alone
from meshwright.jobs.base import AskOptions, Question

FIGURES = MappingProxyType(
    {
        "GPUs": lambda report: f"{report['gpus']:,}",
        "GB exchanged": lambda report: f"{(report['boundary_bytes'] + report['replica_bytes']) / 1e9:,.2f}",
    }
)
"""Columns of a comparison, beside the epoch."""


def answer(question: Question, terms: AskOptions) -> alone.LoneAnswer:
    """The predicted epoch.

    Raises:
        InputError: a wrong scenario.
        InfeasibleError: the graph does not fit the devices.
    """
    from meshwright.reports.graphs import describe_epoch, epoch_tables
    from simulator.graphs.epoch import predict_epoch
    from simulator.graphs.question import make_graph

    return alone.LoneAnswer(predict_epoch(make_graph(*question)), describe_epoch, epoch_tables)


JOB = alone.job("graph", "epochs", answer, FIGURES, "there is no search of layouts of graphs")
