"""The answer of one point: figures in one flat row, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import MeshwrightError
from planner.store import file_digests

SERVING = ("deployment", "goodput_requests_s", "rate", "ttft_s", "tpot_s", "e2e_s", "gpus", "watts")


def answer(ask: str, data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """Answer one point.

    Args:
        ask: plan or simulate.
        data: the scenario.
        folder: base of its relative paths.
        where: name of the source in errors.

    Returns:
        Figures by name; ``problem`` alone where the point has no answer.
    """
    from simulator.serving.scenario import is_serving

    try:
        if is_serving(data):
            return _plan_serving(data) if ask == "plan" else _serve(data, folder, where)
        return _plan(data, folder, where) if ask == "plan" else _simulate(data, folder, where)
    except MeshwrightError as error:
        return {"problem": " ".join(str(error).split())}


def question(ask: str, data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """Inputs of a point's answer: the scenario, and the files that it names; same arguments as ``answer``."""
    return {"ask": ask, "scenario": data, "files": file_digests(data, Path(folder))}


def _plan(data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """The best plan for training."""
    from meshwright.reports.plans import describe_plan
    from planner.constraints import Constraints
    from planner.headroom import headroom_share
    from planner.prediction import Prediction
    from planner.search import search
    from simulator.scenario import make_scenario

    scenario = make_scenario(data, where, Path(folder))
    cluster = scenario.setting.cluster
    result = search(
        scenario.setting,
        cluster.devices,
        Constraints.of(scenario.search.fix, scenario.search.limit, f"{where}: search"),
        scenario.search.objective,
        1,
        None,
        headroom_share(scenario.search.headroom, scenario.setting),
        alternatives=True,
        offload=scenario.search.offload,
    )
    if not len(result.plans):
        return {"problem": result.shortfall.message() if result.shortfall else "no plan fits"}
    return flat(describe_plan(Prediction.of_search(result), 0))


def _simulate(data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """The step of a given plan."""
    from meshwright.reports.plans import describe_plan
    from planner.prediction import simulate_plan
    from simulator.scenario import make_scenario

    scenario = make_scenario(data, where, Path(folder))
    if scenario.plan is None:
        return {"problem": "the scenario has no plan; ask: plan searches for one"}
    return flat(describe_plan(simulate_plan(scenario.setting, scenario.plan).prediction, 0))


def _plan_serving(data: Mapping[str, Any]) -> dict[str, Any]:
    """The best deployment."""
    from meshwright.api import serving as serving_api
    from meshwright.reports.serving_plans import describe_deployments, nearest_words

    search = serving_api.deploy(dict(data), top=1, refine=0)
    if not search.search.plans:
        return {"problem": nearest_words(search.search)}
    best = describe_deployments(search.search, search.refined)["deployments"][0]
    best["deployment"] = search.search.plans[0].describe()
    return flat(best)


def _serve(data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """The requests of a given deployment, on the event engine."""
    from simulator.serving.result import serve
    from simulator.serving.scenario import make_serving

    return flat(serve(make_serving(data, where, Path(folder)), None).to_dict())


def flat(report: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Scalars of a report by dotted name; lists, whose length may differ between points, are left out."""
    row: dict[str, Any] = {}
    for key, value in report.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            row |= flat(value, name)
        elif isinstance(value, float):
            row[name] = float(value)
        elif isinstance(value, str | int) or value is None:
            row[name] = value
    return row
