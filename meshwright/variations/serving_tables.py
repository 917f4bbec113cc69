"""Effects of variations of a serving scenario: latencies, throughput, goodput, cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from meshwright.reports.tables import table
from meshwright.reports.units import percent, seconds, signed_percent
from meshwright.variations.answer import Outcome
from meshwright.variations.tables import change, failures

CHANGES = ("output_rate", "request_rate", "dollars_per_million", "joules_per_million")
"""Figures whose change over the base is reported."""
COLUMNS = (
    "variation",
    "GPUs",
    "TTFT p50",
    "TTFT p99",
    "TPOT p50",
    "TPOT p99",
    "e2e p50",
    "tok/s",
    "vs base",
    "within SLO",
    "KV use",
    "$/M tokens",
)
PLANNED = ("highest rate", "deployment")
"""Of re-planned runs: requests a second within the targets by the search, and its choice."""


def describe_comparison(title: str, outcomes: Sequence[Outcome], interrupted: bool) -> dict[str, Any]:
    """All outcomes with documented keys; the first is the base."""
    base = outcomes[0].report or {}
    return {
        "title": title,
        "interrupted": interrupted,
        "base": base,
        "variations": [_described(outcome, base) for outcome in outcomes[1:]],
    }


def _described(outcome: Outcome, base: dict[str, Any]) -> dict[str, Any]:
    run = outcome.run
    variation = {"name": run.name, "label": run.label, "changed": dict(run.changed), "replanned": run.replan}
    if outcome.report is None:
        return {**variation, "problem": outcome.problem}
    changes = {f"{key}_change": change(outcome.report, base, key) for key in CHANGES}
    return {**variation, **changes, **outcome.report}


def comparison_rows(outcomes: Sequence[Outcome]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Columns, and one row per outcome with figures."""
    base, replanned = outcomes[0].report or {}, any(outcome.run.replan for outcome in outcomes)
    rows = [_row(outcome, base, replanned) for outcome in outcomes if outcome.report is not None]
    return COLUMNS + (PLANNED if replanned else ()), rows


def _row(outcome: Outcome, base: dict[str, Any], replanned: bool) -> list[str]:
    report = outcome.report or {}

    def latency(name: str, point: str) -> str:
        value = report[f"{name}_s"]
        return "" if value is None else seconds(value[point])

    label = outcome.run.label + (" (overload)" if report["sustainable_rate"] is not None else "")
    cells = [
        label,
        f"{report['gpus']:,}",
        latency("ttft", "p50"),
        latency("ttft", "p99"),
        latency("tpot", "p50"),
        latency("tpot", "p99"),
        latency("e2e", "p50"),
        f"{report['output_rate']:,.0f}",
        signed_percent(change(report, base, "output_rate")),
        "" if report["slo_share"] is None else percent(report["slo_share"]),
        percent(report["kv_use"]),
        f"{report['dollars_per_million']:.3g}",
    ]
    if replanned:
        value = report.get("goodput_requests_s")
        cells += ["" if value is None else f"{value:.3g}/s", report.get("plan", "")]
    return cells


def comparison_tables(title: str, outcomes: Sequence[Outcome]) -> list[Table]:
    """The base and its variations, and failed variations."""
    tables = [table(*comparison_rows(outcomes), title)]
    if failed := failures(outcomes):
        tables.append(table(("variation", "because"), failed, left=2))
    return tables
