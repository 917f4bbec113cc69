"""Kernels of the products of experts."""

from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field

from simulator.levers.lever import Lever, Partial, choice, column
from simulator.levers.rule import Columns, LeverSetting, ReleaseRule, every, uses

Value = Literal["one", "per-expert", "fused-mlp"]
WORDS = (None, *get_args(Value))


class StatedGroupedLaunches(Partial):
    """As a plan states it."""

    grouped_launches: Value | None = Field(
        default=None,
        description="whether the products of all experts are one kernel or one kernel each, or one with "
        "activation and casts inside (fused-mlp)",
    )


@choice
class ChosenGroupedLaunches:
    """As a release does it."""

    grouped_launches: Value = "per-expert"


@column
class GroupedLaunchesColumn:
    """Of arrays of plans: codes of the values, shape (plans,)."""

    grouped_launches: np.ndarray


def fused_mlp(setting: LeverSetting, plans: Columns) -> np.ndarray:
    """Whether the products of experts are one kernel with what lies between, shape (plans,)."""
    return uses(setting, "grouped_launches", WORDS, plans.grouped_launches, "fused-mlp")


def _fused_mlp(setting: LeverSetting, plans: Columns) -> np.ndarray:
    runs = setting.training.precision == "mxfp8" and setting.cluster.device.generation.grouped_mxfp8
    return every(plans) if runs or setting.model.moe is None else ~fused_mlp(setting, plans)


def _mechanism(setting: LeverSetting, value: Any) -> tuple[str, ...]:
    used = setting.choices.grouped_launches if value is None else value
    return ("fused expert kernels",) if setting.model.moe and used == "fused-mlp" else ()


LEVER = Lever(
    "grouped_launches",
    acts_on="ops",
    combined=True,
    of_experts=True,
    mechanism=_mechanism,
    differs=lambda value: f"experts {value or 'as released'}",
    words=lambda value: f"{value} experts",
    rules=(
        ReleaseRule(
            "fused_mlp",
            "the fused grouped MLP multiplies MXFP8 on Blackwell (Transformer Engine, "
            "NVTE_CUTEDSL_FUSED_GROUPED_MLP)",
            (),
            ("grouped_launches",),
            _fused_mlp,
        ),
    ),
)
