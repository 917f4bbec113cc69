"""Policies tried around a deployment: table and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from meshwright.reports.tables import table
from meshwright.reports.units import percent, with_half_width
from planner.serving.policies import ENCODER, PolicyRun, PolicySearch, overlapping
from planner.serving.question import ServingQuestion


def describe_policies(policies: PolicySearch | None) -> dict[str, Any]:
    """Combinations with documented keys, the best first; nothing where none was tried."""
    if policies is None:
        return {}
    return {
        "policies": [
            {
                "deployment": dict(tried.policies),
                "chosen": tried is policies.best,
                **(
                    {"problem": tried.run.problem}
                    if tried.run.problem
                    else {
                        "goodput_requests_s": tried.run.goodput,
                        "half_width_requests_s": tried.run.half_width,
                    }
                ),
            }
            for tried in policies.runs
        ]
    }


def policy_tables(question: ServingQuestion, policies: PolicySearch | None) -> list[Table | str]:
    """Combinations for people, and the one that is chosen; a word on policies that no figure above knows."""
    if policies is None:
        names = ", ".join(question.policies)
        return (
            [f"Not in these figures: {names} of the scenario; --refine and --try run them."] if names else []
        )
    rows = [[words(tried.policies), _rate(tried)] for tried in policies.runs]
    best, first = policies.best, policies.runs[0]
    title = "Policies around rank 1, by the largest rate within the targets on the event engine"
    said = f"Chosen: {words(best.policies)}"
    close = sum(overlapping(tried.run, first.run) for tried in policies.runs)
    if close > 1:
        said += f"; the plainest of {close} whose intervals overlap with the largest"
    return [table(("policies", "requests/s"), rows, title, left=1), f"{said}.", *_no_encoders(policies)]


def _no_encoders(policies: PolicySearch) -> list[str]:
    """What encoders on devices of their own carry, where replicas that encode themselves are chosen."""
    best = policies.best
    others = [tried for tried in policies.runs if tried.policies.get(ENCODER) is not None]
    if not others or best.policies[ENCODER] is not None or not best.run.goodput:
        return []
    share = others[0].run.goodput / best.run.goodput - 1.0
    more = f"{percent(abs(share))} {'more' if share > 0 else 'less'}"
    return [f"No gain by encoders on GPUs of their own: {words(others[0].policies)} carries {more}."]


def words(policies: Mapping[str, Any]) -> str:
    """Values by key, as typed."""
    return ", ".join(f"{key}={_word(value)}" for key, value in policies.items())


def _word(value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, Mapping):
        return str(value["kind"])
    if isinstance(value, list):
        return "+".join(f"{tier['place']}:{tier['gigabytes']:g}" for tier in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rate(tried: PolicyRun) -> str:
    return tried.run.problem or with_half_width(tried.run.goodput, tried.run.half_width)
