"""A found deployment as a scenario that `meshwright simulate` reads."""

from __future__ import annotations

from typing import Any

from planner.serving.attention_sides import AttentionSide
from planner.serving.plan import ReplicaGroup, ServingPlan
from planner.serving.question import ServingQuestion
from simulator.models import Model, models
from simulator.scenario_file import cluster_reference, names_of, reference

ROUTER = "least-loaded"
ROUNDS = 10
"""Least requests of a closed loop, over its clients."""


def scenario_of(question: ServingQuestion, plan: ServingPlan, rate: float | None = None) -> dict[str, Any]:
    """The mapping of a serving scenario.

    Args:
        question: the question.
        plan: the deployment found.
        rate: requests a second; the workload's own where not given.
    """
    workload = question.workload.model_dump(mode="json", exclude_none=True)
    if question.concurrency is not None:
        workload["arrivals"] = {"kind": "closed", "concurrency": question.concurrency}
        workload["requests"] = max(workload["requests"], ROUNDS * question.concurrency)
    if rate is not None:
        workload["arrivals"] = {"kind": "poisson", "rate": rate}
    model, native = _model(question.model)
    pools = [_pool(group, native) for group in plan.groups]
    first = plan.groups[0].shape.offer
    taken: dict[str, int] = {}
    for pool, group in zip(pools, plan.groups, strict=True):
        offer = group.shape.offer
        taken[offer.name] = taken.get(offer.name, 0) + group.devices
        if offer.name != first.name:
            pool["cluster"] = cluster_reference(offer.cluster)
    sides = [
        (group.shape.attention, group.replicas, pool) for pool, group in zip(pools, plan.groups, strict=True)
    ]
    beside = [_attention(side, replicas, native, pool) for side, replicas, pool in sides if side is not None]
    deployment: dict[str, Any] = {"engine": question.engine, "router": ROUTER}
    deployment |= pools[0] if len(pools) == 1 else {"pools": [*pools, *beside]}
    deployment |= question.policies
    devices = " and ".join(f"{count} {name}" for name, count in taken.items())
    return {
        "title": f"{question.model.name} on {devices}: {plan.describe()}",
        "model": model,
        "cluster": cluster_reference(first.cluster),
        "gpus": taken[first.name],
        "workload": workload,
        "deployment": deployment,
        "seed": question.seed,
    }


def _model(model: Model) -> tuple[str | dict[str, Any], str]:
    """A model's reference, and the format of the weights that it stands for.

    A catalogue model in the format of another checkpoint goes by its catalogue name: pools state the format.
    """
    for name in filter(models.resolve, names_of(model)):
        catalogued = models.get(name)
        stated = {"checkpoint": model.checkpoint, "left_out": model.left_out}
        if catalogued.model_copy(update=stated) == model:
            return name, catalogued.checkpoint
    return reference(models, model), model.checkpoint


def _pool(group: ReplicaGroup, native: str) -> dict[str, Any]:
    """A pool's mapping; weights in the model's ``native`` go without saying."""
    stated = group.shape.pool.model_dump(mode="json", exclude_defaults=True)
    stated.pop("engine", None)
    if stated.get("weights") == native:
        del stated["weights"]
    options = {"token_budget": group.budget, "max_sequences": group.sequences}
    if group.shape.attention is not None:
        stated["state"] = group.shape.attention.state.model_dump(mode="json")
    return {**stated, "role": group.role, "replicas": group.replicas, "options": options}


def _attention(side: AttentionSide, replicas: int, native: str, decoding: dict[str, Any]) -> dict[str, Any]:
    """The pool of attention devices beside decoding replicas, on the cluster of these."""
    stated = side.pool.model_dump(mode="json", exclude_defaults=True, exclude={"engine"})
    if stated.get("weights") == native:
        del stated["weights"]
    cluster = {name: decoding[name] for name in ("cluster",) if name in decoding}
    return {**stated, **cluster, "replicas": side.pool.replicas * replicas}
