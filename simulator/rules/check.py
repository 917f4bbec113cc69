"""Refuse a plan that breaks a rule, of shapes or of its release."""

from __future__ import annotations

from core.errors import InputError
from simulator.plan import Plan, Plans
from simulator.rules.release import binding
from simulator.rules.shapes import RULES, STATE
from simulator.setting import Setting


def check(setting: Setting, plan: Plan, where: str = "") -> None:
    """Refuse a plan that breaks a rule.

    Raises:
        InputError: all broken rules, one line each.
    """
    plans = Plans.of(plan)
    rules = (*RULES, STATE, *binding(setting))
    problems = [rule.explain(setting, plan) for rule in rules if not rule.holds(setting, plans)[0]]
    if problems:
        raise InputError(problems[0] if len(problems) == 1 else "\n  " + "\n  ".join(problems), where)
