"""Mechanisms of a plan, in words: what a measured run must have used to be evidence for it.

A mechanism follows from one field and its value (of a micro batch: with context parallelism), so that a
search can leave out values without evidence. Sizes count by doublings: a run is evidence up to its own size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from simulator.levers import VARIED
from simulator.plan import Plan
from simulator.setting import Setting

SIXTEEN_BITS = ("fp16", "bf16")
TOKENS = (65536, 32768, 16384, 8192)
"""Tokens of a micro batch on a context rank, by doublings: rows of the products, size of the activations."""
EXPERTS = (128, 64, 32, 16)
"""Experts of a rank, by doublings: groups of the grouped products, weights of a rank."""
USUAL_SCHEDULES = ("1f1b", "interleaved")


def _above_one(words: str) -> Callable[[Setting, Any], tuple[str, ...]]:
    return lambda _, value: (words,) if value > 1 else ()


def _expert(setting: Setting, value: Any) -> tuple[str, ...]:
    if setting.model.moe is None:
        return ()
    share = setting.model.moe.experts / value
    many = tuple(f"over {least} experts a rank" for least in EXPERTS if share > least)
    return ("expert parallelism" if value > 1 else "no expert parallelism", *many)


def _micro_batch(setting: Setting, value: Any) -> tuple[str, ...]:
    tokens = value * setting.training.seq_len
    return tuple(f"micro batch above {least // 1024}k tokens" for least in TOKENS if tokens > least)


def _recompute(_: Setting, value: Any) -> tuple[str, ...]:
    return () if value == "none" else (f"{value} recomputation",)


ACTS_ON = ("recomputation", "overlap", "ops", "passes")
"""Order of levers among mechanisms."""

LEVERS = {
    lever.name: lever
    for kind in ACTS_ON
    for lever in VARIED
    if lever.acts_on == kind and lever.mechanism is not None
}
"""Levers that are mechanisms, each of which its own file names."""

MECHANISMS: Mapping[str, Callable[[Setting, Any], tuple[str, ...]]] = {
    "tensor": _above_one("tensor parallelism"),
    "pipeline": _above_one("pipeline"),
    "virtual_pipeline": _above_one("virtual stages"),
    "schedule": lambda _, value: () if value in USUAL_SCHEDULES else (f"schedule {value}",),
    "context": _above_one("context parallelism"),
    "context_algorithm": lambda _, value: () if value == "ring" else (f"context parallelism by {value}",),
    "expert": _expert,
    "expert_tensor": _above_one("tensor parallelism inside experts"),
    "micro_batch": _micro_batch,
    "sequence_parallel": lambda _, value: ("sequence parallelism",) if value else (),
    "zero": lambda _, value: (f"ZeRO-{value}",) if value else (),
    "shard_group": lambda _, value: ("hybrid sharding",) if value else (),
    "recompute": _recompute,
    **{name: lever.mechanism for name, lever in LEVERS.items() if lever.mechanism is not None},
    "place": lambda _, value: () if value is None else ("state off the device",),
    "sync": lambda _, value: () if value is None else ("replicas synchronised apart",),
}
"""Mechanisms by plan field: what a value means in a setting; of ``micro_batch``: per context rank."""

JOINT = ("context", "micro_batch")
"""Fields of which one decides what a value of the other means."""


def words_of(setting: Setting, plan: Plan, name: str) -> tuple[str, ...]:
    """Mechanisms of one field of a plan."""
    value = plan.micro_batch / plan.context if name == "micro_batch" else getattr(plan, name)
    return MECHANISMS[name](setting, value)


def _relevant(plan: Plan, name: str) -> bool:
    """Whether a field does anything in a plan."""
    if name in ("schedule", "virtual_pipeline"):
        return plan.pipeline > 1
    if name == "context_algorithm":
        return plan.context > 1
    return name not in LEVERS or LEVERS[name].relevant(plan)


def format_mechanism(setting: Setting) -> str:
    """The number format of the linear layers as a mechanism."""
    precision = setting.training.precision
    return "16 bits" if precision in SIXTEEN_BITS else precision


def workload_mechanisms(setting: Setting) -> tuple[str, ...]:
    """Mechanisms that the workload asks for, whatever the plan."""
    workload = {"a vision tower": setting.training.images, "adapters": setting.training.adapter}
    return tuple(words for words, value in workload.items() if value)


def mechanisms(setting: Setting, plan: Plan, left_out: Collection[str] = ()) -> tuple[str, ...]:
    """Mechanisms that a plan uses, its number format and its workload's among them.

    Those of fields ``left_out`` are not.
    """
    used = [
        words
        for name in MECHANISMS
        if name not in left_out and _relevant(plan, name)
        for words in words_of(setting, plan, name)
    ]
    return (format_mechanism(setting), *workload_mechanisms(setting), *dict.fromkeys(used))
