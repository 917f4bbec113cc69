"""Rows of sweeps: scalars of a report by dotted name."""

from __future__ import annotations

from typing import Any

from meshwright.jobs.base import Question
from meshwright.reports.flat import flat


def best_plan_row(question: Question) -> dict[str, Any]:
    """The best plan for training."""
    from meshwright.reports.plans import describe_plan
    from planner.training.constraints import Constraints
    from planner.training.headroom import headroom_share
    from planner.training.prediction import Prediction
    from planner.training.search import search
    from simulator.scenario import make_scenario

    data, where, folder = question
    scenario = make_scenario(data, where, folder)
    cluster = scenario.setting.cluster
    result = search(
        scenario.setting,
        cluster.devices,
        Constraints.of(scenario.search.fix, scenario.search.limit, f"{where}: search"),
        scenario.search.objective,
        headroom=headroom_share(scenario.search.headroom, scenario.setting),
        offload=scenario.search.offload,
        recommended=True,
    )
    if not len(result.plans):
        return {"problem": result.shortfall.message() if result.shortfall else "no plan fits"}
    return flat(describe_plan(Prediction.of_search(result), 0))


def given_plan_row(question: Question) -> dict[str, Any]:
    """The step of a given plan."""
    from meshwright.reports.plans import describe_plan
    from planner.training.prediction import simulate_plan
    from simulator.scenario import make_scenario

    scenario = make_scenario(*question)
    if scenario.plan is None:
        return {"problem": "the scenario has no plan; ask: plan searches for one"}
    return flat(describe_plan(simulate_plan(scenario.setting, scenario.plan).prediction, 0))
