"""Modules that selective recomputation repeats."""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field, field_validator

from simulator.levers.lever import Lever, Partial, choice, column
from simulator.levers.rule import Columns, LeverSetting

Recompute = Literal["none", "selective", "full"]
SELECTIVE, FULL = (get_args(Recompute).index(word) for word in ("selective", "full"))
ModuleName = Literal[
    "core_attn", "mla_up_proj", "layernorm", "mlp", "mlp_act", "moe_act", "shared_experts", "moe"
]
MODULE_NAMES: tuple[ModuleName, ...] = get_args(ModuleName)
MOE_BIT = 1 << MODULE_NAMES.index("moe")


class StatedRecomputeModules(Partial):
    """As a plan states it."""

    recompute_modules: tuple[ModuleName, ...] | None = Field(
        default=None, description="modules that selective recomputation repeats; default: as the release does"
    )

    @field_validator("recompute_modules", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        """Names in the order of ``MODULE_NAMES``, from a list or from text such as ``moe_act+mlp``."""
        if isinstance(value, str):
            value = [word for word in value.split("+") if word and word != "none"]
        if not isinstance(value, list | tuple):
            return value
        named = [name for name in MODULE_NAMES if name in value]
        return tuple(named + [name for name in value if name not in MODULE_NAMES])


@choice
class ChosenRecomputeModules:
    """As a release does it."""

    recompute_modules: tuple[ModuleName, ...] | None = None


@column
class RecomputeModulesColumn:
    """Of arrays of plans: each a ``modules_code``, shape (plans,)."""

    recompute_modules: np.ndarray


def modules_code(names: Iterable[str] | None) -> int:
    """A set of modules as the bits of a number; -1 where it is left to the release."""
    return -1 if names is None else sum(1 << MODULE_NAMES.index(name) for name in names)  # type: ignore[arg-type]


def modules_of(code: int) -> tuple[ModuleName, ...] | None:
    """The modules of a code."""
    return None if code < 0 else tuple(name for bit, name in enumerate(MODULE_NAMES) if code >> bit & 1)


def repeats_layers(plans: Columns) -> np.ndarray:
    """Whether plans recompute whole layers, shape (plans,)."""
    return plans.recompute == FULL


def repeats_experts(setting: LeverSetting, plans: Columns) -> np.ndarray:
    """Whether selective recomputation repeats the experts of whole layers, shape (plans,)."""
    usual = setting.choices.recompute_modules or ()
    modules = plans.recompute_modules
    repeats = np.where(modules < 0, "moe" in usual, modules & MOE_BIT > 0)
    return (plans.recompute == SELECTIVE) & repeats


def _mechanism(setting: LeverSetting, value: Any) -> tuple[str, ...]:
    used = setting.choices.recompute_modules if value is None else value
    return tuple(f"recomputed {name}" for name in used or () if name != "core_attn")


LEVER = Lever(
    "recompute_modules",
    acts_on="recomputation",
    relevant=lambda plan: plan.recompute == "selective",
    mechanism=_mechanism,
    differs=lambda value: f"recompute {'+'.join(value or ()) or 'as released'}",
)
