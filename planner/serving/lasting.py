"""Deployments whose batches outgrow the captured graphs of their engine in time."""

from __future__ import annotations

from math import inf

from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import ReplicaCases

LEAST_FILLED = 0.5
"""Batch over the largest graph from which chance may carry it over: five deviations of a batch of 100."""


def requests_in_graphs(question: ServingQuestion, plan: ServingPlan) -> float:
    """Requests at the plan's load until its decodes leave the graphs for good; infinite where they stay."""
    group = plan.groups[-1]
    table, load = group.shape.table, plan.load / group.replicas
    batch = load * plan.tpot_s * question.output / group.shape.pool.data
    if not 0.0 < LEAST_FILLED * table.largest_graph < batch:
        return inf
    return float(ReplicaCases.of_group(question, group).curve.lasting(load)[0])
