"""Families of plans: properties that a user may require, so that a ranking shows alternatives instead of near
duplicates.

A family is a property that a plan has or lacks. A ranking shows the best plan of each family with its
cost. Plans with one ``LAYOUT`` are near duplicates and share a row. Add a family by adding an entry.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core.records import record
from simulator.levers import VARIED
from simulator.plan import Choice, Plan, Plans

FASTEST, LEAST_MEMORY = "fastest", "least memory"
MEMORY_WITHIN = 0.1
"""Maximum slow-down of the plan with the least memory over the fastest plan, as a share."""

LAYOUT = ("tensor", "pipeline", "context", "data", "expert", "expert_tensor")
"""Plans that differ in one of these fields, or in full sharding, are not near duplicates."""


@record()
class Family:
    """A property of plans.

    Attributes:
        name: label in tables and JSON.
        holds: mask of the plans that have it, shape (plans,).
    """

    name: str
    holds: Callable[[Plans], np.ndarray]


FAMILIES: tuple[Family, ...] = (
    Family("no context parallelism", lambda plans: plans.context == 1),
    Family("no virtual stages", lambda plans: plans.virtual_pipeline == 1),
    Family("no pipeline", lambda plans: plans.pipeline == 1),
    Family("no tensor parallelism", lambda plans: plans.tensor == 1),
    Family("no recomputation", lambda plans: plans.recompute == Choice["recompute"].index("none")),
    Family("ZeRO-3", lambda plans: plans.zero == 3),
    Family("no full sharding", lambda plans: plans.zero < 3),
)


def mechanisms(plans: Plans) -> np.ndarray:
    """Complexity of each plan, shape (plans,): the number of mechanisms in use.

    Chunks count by their logarithm, since every doubling adds warm-up and launches.
    """
    usual = [name in ("1f1b", "interleaved") for name in plans.schedule_names]
    odd = ~np.array([*usual, True])[np.where(plans.pipeline > 1, plans.schedule, len(usual))]
    return (
        (plans.tensor > 1)
        + (plans.pipeline > 1)
        + 2.0 * (plans.context > 1)
        + np.log2(plans.virtual_pipeline)
        + 1.0 * (plans.expert_tensor > 1)
        + (plans.recompute > 0)
        + np.maximum(plans.zero - 1, 0)
        + (plans.shard_group > 0)
        + odd
    )


def layouts(plans: Plans) -> np.ndarray:
    """An integer for each plan, shape (plans,), that near duplicates share."""
    return plans.distinct(*LAYOUT, values=(plans.zero == 3,))[1]


def differences(plan: Plan, other: Plan) -> str:
    """The fields in which a near duplicate differs, as a label: ``x12 micro 2``."""
    words = {
        "virtual_pipeline": f"x{other.virtual_pipeline}",
        "micro_batch": f"micro {other.micro_batch}",
        "schedule": other.schedule,
        "context_algorithm": other.context_algorithm,
        "shard_group": f"shard group {other.shard_group or 'all'}",
        "recompute": f"recompute {other.recompute}",
        **{lever.name: lever.differs(getattr(other, lever.name)) for lever in VARIED if lever.differs},
        "zero": f"ZeRO-{other.zero}",
    }
    changed = [name for name in words if getattr(plan, name) != getattr(other, name)]
    if "recompute" in changed and "recompute_modules" in changed:
        changed.remove("recompute" if other.recompute == "selective" else "recompute_modules")
    if "virtual_pipeline" in changed and "schedule" in changed:
        changed.remove("schedule")
    return " ".join(words[name] for name in changed)
