"""Policies tried around a deployment: table and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from meshwright.reports.tables import table
from planner.serving.policies import PolicyRun, PolicySearch, alike
from planner.serving.question import ServingQuestion


def describe_policies(found: PolicySearch | None) -> dict[str, Any]:
    """Combinations with documented keys, the best first; nothing where none was tried."""
    if found is None:
        return {}
    return {
        "policies": [
            {
                "deployment": dict(one.policies),
                "chosen": one is found.best,
                **(
                    {"problem": one.run.problem}
                    if one.run.problem
                    else {"goodput_requests_s": one.run.goodput, "half_width_requests_s": one.run.half_width}
                ),
            }
            for one in found.runs
        ]
    }


def policy_tables(question: ServingQuestion, found: PolicySearch | None) -> list[Table | str]:
    """Combinations for people, and the one that is chosen; a word on policies that no figure above knows."""
    if found is None:
        kept = ", ".join(question.policies)
        return [f"Not in these figures: {kept} of the scenario; --refine and --try run them."] if kept else []
    rows = [[words(one.policies), _rate(one)] for one in found.runs]
    best, first = found.best, found.runs[0]
    title = "Policies around rank 1, by the largest rate within the targets on the event engine"
    said = f"Chosen: {words(best.policies)}"
    close = sum(alike(one.run, first.run) for one in found.runs)
    if close > 1:
        said += f"; the plainest of {close} whose intervals overlap with the largest"
    return [table(("policies", "requests/s"), rows, title, left=1), f"{said}."]


def words(policies: Mapping[str, Any]) -> str:
    """Values by key, as typed."""
    return ", ".join(f"{key}={_word(value)}" for key, value in policies.items())


def _word(value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, Mapping):
        return str(value["kind"])
    if isinstance(value, list):
        return "+".join(f"{one['place']}:{one['gigabytes']:g}" for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rate(one: PolicyRun) -> str:
    return one.run.problem or f"{one.run.goodput:.3g} ± {one.run.half_width:.2g}"
