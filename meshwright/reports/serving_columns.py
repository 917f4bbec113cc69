"""Figures of a deployment, one entry each: a key of JSON and of columns, and a column of the table.

A figure of the table alone has no key, one of JSON alone no heading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from meshwright.reports.finite import finite
from meshwright.reports.serving_verdict import prompts_only, tokens_s, usd_per_million
from meshwright.reports.units import per_second, seconds, significant
from planner.serving.plan import ServingPlan
from planner.serving.search import ServingSearch

MISSES = " (less)"
"""Beside the goodput of a deployment that carries less than the rate asked for."""


def _nothing(search: ServingSearch, plan: ServingPlan) -> str:
    return ""


class ServingColumn(NamedTuple):
    """One figure of a deployment."""

    key: str
    value: Callable[[ServingPlan], Any]
    heading: str = ""
    cell: Callable[[ServingSearch, ServingPlan], str] = _nothing
    more: bool = False
    """Whether the table has it with ``--more`` alone."""


def _limits(search: ServingSearch, plan: ServingPlan) -> str:
    return " + ".join(f"{group.budget:,} tok, {group.sequences:,} seq" for group in plan.groups)


def _goodput(search: ServingSearch, plan: ServingPlan) -> str:
    return f"{per_second(plan.goodput)}/s{'' if plan.meets else MISSES}"


def _speed(search: ServingSearch, plan: ServingPlan) -> str:
    return f"{tokens_s(search, plan) / plan.devices:,.0f}"


COLUMNS = (
    ServingColumn("", ServingPlan.describe, "limits", _limits, more=True),
    ServingColumn("goodput_requests_s", lambda plan: plan.goodput, "goodput", _goodput),
    ServingColumn("rate", lambda plan: plan.load),
    ServingColumn("ttft_s", lambda plan: finite(plan.ttft_s), "TTFT", lambda _, plan: seconds(plan.ttft_s)),
    ServingColumn("tpot_s", lambda plan: plan.tpot_s, "TPOT", lambda _, plan: seconds(plan.tpot_s)),
    ServingColumn(
        "e2e_s", lambda plan: finite(plan.e2e_s), "e2e", lambda _, plan: seconds(plan.e2e_s), more=True
    ),
    ServingColumn("output_tokens_per_s", lambda plan: plan.output_tokens_s),
    ServingColumn(
        "output_tokens_per_s_per_gpu", lambda plan: plan.output_tokens_s / plan.devices, "tok/s/GPU", _speed
    ),
    ServingColumn("gpus", lambda plan: plan.devices, "GPUs", lambda _, plan: str(plan.devices)),
    ServingColumn("watts", lambda plan: plan.watts),
    ServingColumn("usd_per_hour", lambda plan: plan.usd_per_hour),
    ServingColumn(
        "usd_per_million_tokens",
        lambda plan: plan.usd_per_million,
        "$/Mtok",
        lambda search, plan: significant(usd_per_million(search, plan)),
    ),
    ServingColumn(
        "joules_per_token",
        lambda plan: plan.joules_per_token,
        "J/tok",
        lambda _, plan: significant(plan.joules_per_token),
        more=True,
    ),
)
"""The figures, in the order of tables and of JSON."""


def plan_figures(plan: ServingPlan) -> dict[str, Any]:
    """Figures of a deployment by key."""
    return {column.key: column.value(plan) for column in COLUMNS if column.key}


def plan_cells(search: ServingSearch, more: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Columns of a ranking: heading, and a cell for each deployment."""
    for column in COLUMNS:
        unasked = column.heading == "TPOT" and prompts_only(search)
        if column.heading and (more or not column.more) and not unasked:
            yield column.heading, [column.cell(search, plan) for plan in search.plans]
