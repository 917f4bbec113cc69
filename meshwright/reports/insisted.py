"""Rules of the release that a plan breaks and that the user set aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simulator.plan import Plan
from simulator.rules import insisted
from simulator.setting import Setting


def describe_insisted(setting: Setting, plan: Plan) -> dict[str, Any]:
    """The rules by name with their reasons, under their documented key; empty where a plan breaks none."""
    rules = insisted(setting, plan)
    return {"insisted": rules} if rules else {}


def insisted_words(reports: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """One sentence for each rule that described plans break, with the names of these plans."""
    breaking: dict[tuple[str, str], list[str]] = {}
    for name, report in reports:
        for rule in report.get("insisted", {}).items():
            breaking.setdefault(rule, []).append(name)
    return [
        f"{', '.join(names)}: predicted against the rule {rule}, as --allow asks: {why}."
        for (rule, why), names in breaking.items()
    ]
