"""What a release can run: the values that it offers, and which levers go together.

Every question that takes a plan asks these rules: ``simulate``, ``whatif``, ``sweep``, ``import``, ``export``
and the search. The files of levers (``simulator.levers``) state them. A rule binds the releases of its code
bases. A release that is an exception says so in its file (``lifts``), and a user insists with ``allow``
(``--allow RULE``); the plan is then predicted as stated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from core.errors import InputError, UnknownNameError
from simulator.levers import (
    GRAPHS_RECOMPUTE,
    RULES,
    SHARED,
    ReleaseRule,
    modules_of,
    spelled,
)
from simulator.plan import Choice, Plan, Plans
from simulator.setting import Setting

OFFERS = "offers"
"""Name of the rule that a release has the values that a plan states."""

COMPARED = ("schedule", "zero")
"""Fields whose ``offers`` narrow a search alone: users compare their values on any release."""

IDLE: dict[str, tuple[str, int]] = {
    "virtual_pipeline": ("pipeline", 1),
    "context_algorithm": ("context", 1),
    "overlap_tensor": ("tensor", 1),
    "sequence_parallel": ("tensor", 1),
    "shard_group": ("zero", 0),
}
"""Fields that do nothing where another one has a value: the other field and that value."""


def lacking(setting: Setting, plan: Plan) -> list[str]:
    """What a plan states that its release does not offer, one sentence each."""
    plans = Plans.of(plan)
    return [
        unoffered(setting, name, getattr(plan, name))
        for name in setting.framework.offers
        if not _offered_of(setting, plans, name)[0]
    ]


def offers(setting: Setting, name: str, value: Any) -> bool:
    """Whether the release has a value of a plan field: its default, or one that it offers.

    Schedules and ZeRO stages may be compared on any release.
    """
    release = setting.framework
    offered, usual = release.offers.get(name), release.defaults.get(name)
    if name in COMPARED or offered is None or value in (None, usual, *offered):
        return True
    if not isinstance(value, tuple):
        return False
    return value == tuple(usual or ()) or all(part in offered for part in value)


def unoffered(setting: Setting, name: str, value: Any) -> str:
    """Sentence about a value that a release lacks, with those that it has; its file has their source."""
    release = setting.framework
    offered = release.offers[name]
    if isinstance(value, tuple):
        value = tuple(part for part in value if part not in offered)
    return f"{release.name} offers {name} {', '.join(map(spelled, offered))}, found {spelled(value)}"


def _offered(setting: Setting, plans: Plans) -> np.ndarray:
    mask = np.ones(len(plans), dtype=bool)
    for name in setting.framework.offers:
        mask &= _offered_of(setting, plans, name)
    return mask


def _offered_of(setting: Setting, plans: Plans, name: str) -> np.ndarray:
    """Whether the release has the plans' values of one field, shape (plans,)."""
    if name in SHARED:
        return np.ones(len(plans), dtype=bool) & offers(setting, name, getattr(plans.shared, name))
    codes, places = np.unique(getattr(plans, name), return_inverse=True)
    words = plans.schedule_names if name == "schedule" else Choice.get(name)
    if name == "recompute_modules":
        values: list[Any] = [modules_of(int(code)) for code in codes]
    else:
        values = [words[int(code)] for code in codes] if words else codes.tolist()
    has = np.array([offers(setting, name, value) for value in values], dtype=bool)[places]
    if name not in IDLE:
        return has
    other, value = IDLE[name]
    return has | (getattr(plans, other) == value)


def _bound(setting: Setting) -> bool:
    return bool(setting.framework.offers)


def _explain_offers(setting: Setting, plan: Plan) -> str:
    return "; ".join(lacking(setting, plan))


RELEASE_RULES = (
    ReleaseRule(
        OFFERS,
        "a plan states values that its release offers (`offers` of its file)",
        (),
        (),
        _offered,
        of_levers=False,
        bound=_bound,
        says=_explain_offers,
    ),
    *RULES,
)
"""All rules about releases, the plainest cause first."""

NAMES = tuple(rule.name for rule in RELEASE_RULES)


def binding(setting: Setting) -> tuple[ReleaseRule, ...]:
    """The rules that a setting's plans must meet: those of its release that the user does not set aside.

    Raises:
        UnknownNameError: the release lifts a rule that there is not.
    """
    for name in setting.framework.lifts:
        if name not in NAMES:
            raise UnknownNameError("rule", name, NAMES, f"framework {setting.framework.name}: lifts")
    return tuple(rule for rule in RELEASE_RULES if rule.name not in setting.allow and rule.binds(setting))


def runs(setting: Setting, plans: Plans, rules: Iterable[ReleaseRule]) -> np.ndarray:
    """Which plans meet all of the rules, shape (plans,)."""
    mask = np.ones(len(plans), dtype=bool)
    for rule in rules:
        mask &= rule.holds(setting, plans)
    return mask


def check_allow(setting: Setting, where: str) -> None:
    """Refuse rules to set aside that there are not, or that bind no plan of the setting.

    Raises:
        InputError: such a rule; with the nearest, or with those that bind.
    """
    for name in setting.allow:
        if name not in NAMES:
            raise UnknownNameError("rule", name, NAMES, where)
        if not next(rule for rule in RELEASE_RULES if rule.name == name).binds(setting):
            bind = ", ".join(rule.name for rule in RELEASE_RULES if rule.binds(setting)) or "none"
            raise InputError(
                f"{name} binds no plan of {setting.framework.name}; rules that do: {bind}", where
            )


def without_default_graphs(setting: Setting, plan: Plan) -> Plan:
    """The plan, with no graphs where those of its release's default would lie inside recomputed modules."""
    if plan.graphs is not None or setting.graphs == "none":
        return plan
    around = [rule for rule in binding(setting) if rule.name == GRAPHS_RECOMPUTE]
    broken = not runs(setting, Plans.of(plan), around)[0]
    return plan.model_copy(update={"graphs": "none"}) if broken else plan


def breaks(setting: Setting, plan: Plan) -> dict[str, str]:
    """The rules of its release that a plan breaks, set aside or not, with what they say."""
    plans = Plans.of(plan)
    return {
        rule.name: rule.says(setting, plan) if rule.says else rule.why
        for rule in RELEASE_RULES
        if rule.binds(setting) and not rule.holds(setting, plans)[0]
    }


def insisted(setting: Setting, plan: Plan) -> dict[str, str]:
    """The rules that a plan breaks and that the user set aside, with what they say."""
    if not setting.allow:
        return {}
    return {name: why for name, why in breaks(setting, plan).items() if name in setting.allow}
