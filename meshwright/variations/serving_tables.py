"""Effects of variations of a serving scenario: latencies, throughput, goodput, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from meshwright.replications import FIGURES, difference, half_range
from meshwright.reports.tables import table
from meshwright.reports.units import percent, seconds, signed_percent, significant
from meshwright.variations.answer import Outcome
from meshwright.variations.tables import change, failures
from meshwright.variations.verdicts import servers_verdict

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


def serving_changes(report: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Changes of a deployment's figures, and differences over the seeds."""
    changes = {f"{key}_change": change(report, base, key) for key in CHANGES}
    paired = {name: difference(report, base, name) for name in FIGURES}
    comparisons = {name: vars(each) for name, each in paired.items() if each is not None}
    return {**changes, **({"differences": comparisons} if comparisons else {})}


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
        latency("ttft", "p99") + _range(report, "TTFT p99"),
        latency("tpot", "p50"),
        latency("tpot", "p99") + _range(report, "TPOT p99"),
        latency("e2e", "p50"),
        f"{report['output_rate']:,.0f}",
        signed_percent(change(report, base, "output_rate")),
        "" if report["slo_share"] is None else percent(report["slo_share"]),
        percent(report["kv_use"]),
        significant(report["dollars_per_million"]),
    ]
    if replanned:
        value = report.get("goodput_requests_s")
        cells += ["" if value is None else f"{significant(value)}/s", report.get("plan", "")]
    return cells


def _range(report: Mapping[str, Any], name: str) -> str:
    """Half the range of a figure over the seeds; empty with one seed."""
    half = half_range(report, name)
    return "" if half is None else f" ± {percent(half, 0)}"


def difference_words(outcomes: Sequence[Outcome]) -> list[str]:
    """What the seeds say of every variation: which differences they cannot tell from none, and overload."""
    base, *others = outcomes
    if base.report is None:
        return []
    words = []
    if seeds := base.report.get("seeds"):
        words.append(f"Medians of {len(seeds)} seeds, the same for all rows; ± is half their range.")
        words += [line for outcome in others if (line := _told(outcome, base.report))]
    words += band_words(outcomes)
    overloaded = [each.run.label for each in outcomes if each.report and each.report["sustainable_rate"]]
    if overloaded:
        words.append(
            f"{', '.join(overloaded)}: overloaded. The queue grows without end, so latencies grow with the "
            "run and have no steady figure."
        )
    return words


def band_words(outcomes: Sequence[Outcome]) -> list[str]:
    """Errors to expect of the latencies, said once for all rows that have the same."""
    rows: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.report is not None:
            errors = outcome.report.get("expected_errors") or {}
            metrics = [f"{name.upper()} ± {percent(error['p90'], 0)}" for name, error in errors.items()]
            rows.setdefault(", ".join(metrics), []).append(outcome.run.label)
    lines = []
    for metrics, labels in rows.items():
        of = "" if len(rows) == 1 else f"{', '.join(labels)}: "
        lines.append(f"{of}expected error {metrics}" if metrics else f"{of}expected error not known")
    if not lines or not any(rows):
        return lines and ["Expected error: not known."]
    words = "; ".join(lines)
    return [
        f"{words[0].upper()}{words[1:]} (one of ten measured servers lies beyond); rows share most of it."
    ]


def _told(outcome: Outcome, base: Mapping[str, Any]) -> str:
    """Figures of a variation whose difference lies inside the spread of the seeds."""
    if outcome.report is None:
        return ""
    by_name = {name: difference(outcome.report, base, name) for name in FIGURES}
    inside = [name for name, paired in by_name.items() if paired is not None and not paired.tells]
    if not inside:
        return ""
    if len(inside) == sum(paired is not None for paired in by_name.values()):
        return f"{outcome.run.label}: no difference that the seeds can tell."
    return f"{outcome.run.label}: no difference in {', '.join(inside)} that the seeds can tell."


def comparison_tables(title: str, outcomes: Sequence[Outcome]) -> list[Table | str]:
    """The verdict, the base and its variations, what seeds say of differences, and failed variations."""
    verdict = [*filter(None, [servers_verdict(outcomes)])]
    tables: list[Table | str] = [
        *verdict,
        table(*comparison_rows(outcomes), title),
        *difference_words(outcomes),
    ]
    if failed := failures(outcomes):
        tables.append(table(("variation", "because"), failed, left=2))
    return tables
