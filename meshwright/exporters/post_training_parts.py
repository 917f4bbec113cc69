"""Parts of a scenario that configurations of post-training state alike."""

from __future__ import annotations

from typing import Any

from meshwright.exporters.key_values import KeyValues
from simulator.lengths.lognormal import median_of_mean

ASSUMED_SHARE = 0.5
"""Mean answer over the longest one, where a file does not say it."""
SIGMA = 0.5
"""Spread of answers around it."""
ENDS = {"first_stage_layers": "first_layers", "last_stage_layers": "last_layers"}
"""Fields of stages that differ, and their facts."""


def answers(longest: int) -> dict[str, Any]:
    """A law of lengths up to the longest answer, in tokens."""
    median = median_of_mean(ASSUMED_SHARE * longest, SIGMA, longest)
    return {"kind": "lognormal", "median": round(median), "sigma": SIGMA, "most": longest}


def megatron_layout(values: KeyValues, recompute: str) -> dict[str, Any]:
    """The plan that a trainer on Megatron states."""
    names = ("tensor", "pipeline", "context", "expert", "expert_tensor")
    plan: dict[str, Any] = {name: values.integer(name, 1) for name in names}
    plan |= {"virtual_pipeline": values.integer("chunks", 1), "zero": 1, "recompute": recompute}
    # Megatron's sequence parallelism needs tensor-parallel ranks.
    plan["sequence_parallel"] = plan["tensor"] > 1 and values.flag("sequence_parallel")
    if values.flag("host_offload"):
        plan["place"] = "megatron-hybrid"
    if values.word("dispatcher") == "flex":
        values.flag("deepep")  # Megatron Core's flex dispatcher runs DeepEP unless stated
        plan |= {"dispatcher": "flex", "dispatcher_library": values.word("flex_backend") or "deepep"}
    ends = {field: values.integer(fact, 0) for field, fact in ENDS.items()}
    return plan | {field: layers for field, layers in ends.items() if layers}


def engine_degrees(values: KeyValues) -> dict[str, Any]:
    """Degrees of a rollout engine, where they are above 1, and its share of memory."""
    degrees = {name: values.integer(f"engine_{name}") for name in ("tensor", "pipeline")}
    share = values.share("memory_share")
    return {name: degree for name, degree in degrees.items() if degree > 1} | {
        "options": {"memory_share": share}
    }


def trained(values: KeyValues, plan: dict[str, Any], micro: int, scoring: int) -> dict[str, Any]:
    """The trainer's role: its plan, and the rows of its micro batches in updates and in scoring passes."""
    return {
        "plan": plan | ({"micro_batch": micro} if micro > 1 else {}),
        **({"scoring_micro_batch": scoring} if scoring != micro else {}),
    }
