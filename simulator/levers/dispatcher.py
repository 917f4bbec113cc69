"""What sends tokens to experts."""

from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field

from simulator.levers.lever import Lever, Partial, choice, column
from simulator.levers.rule import MEGATRON_CORE, Columns, LeverSetting, ReleaseRule, every, uses

Value = Literal["all-to-all", "flex", "flex-between-nodes"]
WORDS = (None, *get_args(Value))


class StatedDispatcher(Partial):
    """As a plan states it."""

    dispatcher: Value | None = Field(
        default=None,
        description="what sends tokens to experts: an all-to-all with one copy an expert, DeepEP or HybridEP "
        "(Megatron's flex dispatcher) with one copy a rank or node, or these only where experts span nodes",
    )


@choice
class ChosenDispatcher:
    """As a release does it."""

    dispatcher: Value = "all-to-all"


@column
class DispatcherColumn:
    """Of arrays of plans: codes of the values, shape (plans,)."""

    dispatcher: np.ndarray


def flex(setting: LeverSetting, plans: Columns) -> np.ndarray:
    """Whether plans send tokens with the flex dispatcher, shape (plans,)."""
    return uses(setting, "dispatcher", WORDS, plans.dispatcher, "flex")


def _flex(setting: LeverSetting, plans: Columns) -> np.ndarray:
    runs = setting.cluster.device.generation.flex_dispatcher or setting.model.moe is None
    return every(plans) if runs else ~flex(setting, plans)


def _deepep(setting: LeverSetting, plans: Columns) -> np.ndarray:
    """Whether plans send tokens with DeepEP, shape (plans,)."""
    if setting.of(plans).choices.dispatcher_library != "deepep" or setting.model.moe is None:
        return ~every(plans)
    return flex(setting, plans)


def _deepep_rack(setting: LeverSetting, plans: Columns) -> np.ndarray:
    in_rack = setting.cluster.domain > setting.cluster.devices_per_node
    return ~_deepep(setting, plans) if in_rack else every(plans)


def _deepep_capacity(setting: LeverSetting, plans: Columns) -> np.ndarray:
    pads = setting.of(plans).choices.fixed_capacity
    return ~_deepep(setting, plans) if pads else every(plans)


def _mechanism(setting: LeverSetting, value: Any) -> tuple[str, ...]:
    used = setting.choices.dispatcher if value is None else value
    # Between nodes: DeepEP or HybridEP only where experts span domains, so either is the release's own.
    return () if setting.model.moe is None or used == "flex-between-nodes" else (f"{used} dispatcher",)


LEVER = Lever(
    "dispatcher",
    acts_on="ops",
    combined=True,
    of_experts=True,
    relevant=lambda plan: plan.expert > 1,
    mechanism=_mechanism,
    differs=lambda value: f"dispatcher {value or 'as released'}",
    words=str,
    rules=(
        ReleaseRule(
            "flex",
            "the flex dispatcher runs on Ampere and newer GPUs of NVIDIA unless the release brings its own "
            "(Megatron Bridge, flex_dispatcher_backend.py)",
            MEGATRON_CORE,
            ("dispatcher",),
            _flex,
        ),
        ReleaseRule(
            "deepep_rack",
            "DeepEP runs on nodes, not on racks (Megatron Bridge, flex_dispatcher_backend.py)",
            MEGATRON_CORE,
            ("dispatcher", "dispatcher_library"),
            _deepep_rack,
        ),
        ReleaseRule(
            "deepep_capacity",
            "DeepEP sends as many tokens as experts get: they pad to no capacity (Megatron Core, "
            "transformer_config.py)",
            MEGATRON_CORE,
            ("dispatcher", "dispatcher_library", "fixed_capacity"),
            _deepep_capacity,
        ),
    ),
)
