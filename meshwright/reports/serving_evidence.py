"""Measured servers nearest to a deployment, and its mechanisms that none of them has."""

from __future__ import annotations

from meshwright.measured_servers import Evidence, evidence
from planner.serving.plan import ServingPlan
from planner.serving.search import ServingSearch
from simulator.serving.engines import engines


def _place(search: ServingSearch, plan: ServingPlan) -> dict[str, str]:
    """Model, device and engine family of a plan."""
    shape = plan.groups[-1].shape
    family = engines.get(search.question.engine).engine
    return {"model": search.question.model.name, "device": shape.offer.name, "engine": family}


def evidence_words(search: ServingSearch, plan: ServingPlan) -> str:
    """The measured servers nearest to a plan, and what none of them runs."""
    words = _evidence(search, plan).words(_place(search, plan))
    missing = _unmeasured(plan)
    return f"{words}; none has {' and '.join(missing)}" if missing else words


def _unmeasured(plan: ServingPlan) -> list[str]:
    """Mechanisms that no measured server has: `measured_servers.csv` counts servers of one stage."""
    several = len(plan.groups) > 1
    return [
        f"pipeline stages ({f'{group.role} ' if several else ''}PP{group.shape.pool.pipeline})"
        for group in plan.groups
        if group.shape.pool.pipeline > 1
    ]


def _evidence(search: ServingSearch, plan: ServingPlan) -> Evidence:
    """Measured servers nearest to a plan; two pools have none of their layout."""
    pool = plan.groups[-1].shape.pool
    layout = {name: str(getattr(pool, name)) for name in ("tensor", "data", "expert")}
    plain = len(plan.groups) == 1 and pool.speculation is None and pool.pipeline == 1
    layout["weights"] = pool.stored if plain else ""
    return evidence(_place(search, plan), layout)


def unproven(search: ServingSearch) -> dict[str, str]:
    """A row on mechanisms of the first plan that rest on no measured server."""
    missing = _unmeasured(search.plans[0]) if search.plans else []
    return {"no measured row": f"{' and '.join(missing)} of rank 1: from the model alone"} if missing else {}
