"""A found deployment as a scenario that `meshwright simulate` reads."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from hwmodels.cluster import clusters
from hwmodels.loading import Catalogue
from planner.serving.plan import Group, ServingPlan
from planner.serving.question import Question
from simulator.models import models

ROUTER = "least-loaded"


def scenario_of(question: Question, plan: ServingPlan, rate: float | None = None) -> dict[str, Any]:
    """The mapping of a serving scenario.

    Args:
        question: what was asked.
        plan: what was found.
        rate: requests a second; the workload's own where not given.
    """
    workload = question.workload.model_dump(mode="json", exclude_none=True)
    if rate is not None:
        workload["arrivals"] = {"kind": "poisson", "rate": rate}
    pools = [_pool(group) for group in plan.groups]
    deployment: dict[str, Any] = {"engine": question.engine, "router": ROUTER}
    deployment |= pools[0] if len(pools) == 1 else {"pools": pools}
    return {
        "title": f"{question.model.name} on {plan.devices} {question.cluster.device.name}: {plan.describe()}",
        "model": _reference(models, question.model),
        "cluster": _cluster(question),
        "gpus": plan.devices,
        "workload": workload,
        "deployment": deployment,
        "seed": question.seed,
    }


def _reference(catalogue: Catalogue[Any], found: BaseModel) -> str | dict[str, Any]:
    """The name of a catalogue entry, or the definition of anything else."""
    name = getattr(found, "name", "")
    if name in catalogue.names() and catalogue.get(name) == found:
        return name
    return found.model_dump(mode="json")


def _cluster(question: Question) -> str | dict[str, Any]:
    """The cluster's name, or its definition; ``gpus`` says how much of it is used."""
    cluster = question.cluster
    whole = clusters.get(cluster.name) if cluster.name in clusters.names() else None
    if whole is not None and whole.resized(cluster.devices) == cluster:
        return cluster.name
    return cluster.model_dump(mode="json")


def _pool(group: Group) -> dict[str, Any]:
    given = group.shape.pool.model_dump(mode="json", exclude_defaults=True)
    given.pop("engine", None)
    options = {"token_budget": group.budget, "max_sequences": group.sequences}
    return {**given, "role": group.role, "replicas": group.replicas, "options": options}
