"""Runs of a question's serving scenarios."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from core.errors import InfeasibleError
from meshwright.measured.served_errors import measured_of
from meshwright.questions.serving import serving_question
from meshwright.replications import over_seeds, seeded
from meshwright.reports.serving_evidence import described, run_errors
from meshwright.reports.serving_shortfall import nearest_words
from meshwright.variations.answer import Outcome
from meshwright.variations.question import ScenarioRun
from planner.serving.deployment import scenario_of
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.search import search_serving
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting

ARGUMENTS = ("model", "cluster", "gpus", "isl", "osl", "rate", "ttft", "tpot", "share", "engine")
"""Arguments of a question that a scenario gives itself."""


def run_serving(
    run: ScenarioRun, progress: Callable[[float], None] | None = None, replications: int = 1
) -> Outcome:
    """Run one scenario; its report is that of ``simulate --json``.

    A re-planned scenario runs the deployment that the search ranks first, and reports it as ``plan`` with its
    highest rate within the targets as ``goodput_requests_s``.

    Args:
        run: the scenario.
        progress: called with the share of requests that ended.
        replications: seeds; figures are medians over them.

    Raises:
        MeshwrightError: it cannot be run, or no deployment meets its targets.
    """
    if not run.replan:
        setting = make_serving(run.data, run.where, run.folder)
        return Outcome(run, reported(setting, progress, replications))
    question, plan = best_deployment(run)
    deployed = make_serving(scenario_of(question, plan), run.where, run.folder)
    planned = {"plan": plan.describe(), "goodput_requests_s": plan.goodput}
    return Outcome(run, {**reported(deployed, progress, replications), **planned})


def reported(
    setting: ServingSetting, progress: Callable[[float], None] | None, replications: int
) -> dict[str, Any]:
    """Medians of a run over its seeds, and the errors to expect of its latencies."""
    settings = seeded(setting, replications)
    reports, errors = [], {}
    for number, each in enumerate(settings):
        result = serve(each, progress and partial(_advance, progress, number, len(settings)))
        reports.append(result.to_dict())
        errors = described(run_errors(result))
    return {**over_seeds(reports), "expected_errors": errors}


def _advance(progress: Callable[[float], None], number: int, runs: int, share: float) -> None:
    """Report the share of all runs that is done."""
    progress((number + share) / runs)


def best_deployment(run: ScenarioRun) -> tuple[ServingQuestion, ServingPlan]:
    """The deployment of a scenario with the highest rate within the targets, or without targets the fastest.

    Raises:
        InputError: the scenario has neither targets nor a rate.
        InfeasibleError: no replica fits, or no deployment meets the targets.
    """
    targets = (run.data["workload"].get("slo") or {}).keys() & {"ttft", "tpot", "e2e"}
    arguments: dict[str, Any] = dict.fromkeys(ARGUMENTS)
    arguments["objective"] = "goodput" if targets else "latency"
    question = serving_question(run.data, arguments, {}, {}, run.where, run.folder)
    result = search_serving(question, top=1, measured=measured_of(question))
    if result.plans:
        return question, result.plans[0]
    raise InfeasibleError(nearest_words(result))
