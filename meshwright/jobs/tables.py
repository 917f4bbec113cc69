"""A batch of a recommendation model with embedding tables."""

from __future__ import annotations

from types import MappingProxyType

from meshwright.jobs import alone
from meshwright.jobs.base import AskOptions, Question

FIGURES = MappingProxyType(
    {
        "samples/s": lambda report: f"{report['rate']:,.0f}",
        "balance": lambda report: f"{report['balance']:.2f}",
    }
)
"""Columns of a comparison, beside the step."""


def answer(question: Question, terms: AskOptions) -> alone.LoneAnswer:
    """The predicted batch.

    Raises:
        InputError: a wrong scenario.
        InfeasibleError: the tables do not fit the devices.
    """
    from meshwright.reports.recommendation import describe_tables, tables_tables
    from simulator.tables.scenario import make_tables
    from simulator.tables.step import predict_step

    return alone.LoneAnswer(predict_step(make_tables(*question)), describe_tables, tables_tables)


JOB = alone.job("tables", "steps", answer, FIGURES, "`simulate` chooses shards by itself (shards.kind: auto)")
