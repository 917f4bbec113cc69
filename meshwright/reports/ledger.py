"""A ledger of predicted and measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import RenderableType

from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import gibibytes, percent, seconds, signed_percent
from meshwright.validation.cases import TrainingCase
from meshwright.validation.choices import families
from meshwright.validation.ledger import ErrorSummary, Ledger, PredictedCase

SIXTEEN_BITS = ("fp16", "bf16")
SHOWN_FAMILIES = 12
SHOWN_CASES = 6
CHOSEN = "Constants were chosen on part of them; --leave-out source predicts each source without its own."


def as_json(ledger: Ledger) -> dict[str, Any]:
    """The ledger with documented keys."""
    return {
        "cases": [
            {
                "case_id": entry.case.case_id,
                "predicted_step_time_s": entry.predicted_step_s,
                "measured_step_time_s": entry.case.measured_step_s,
                "relative_error": entry.relative_error,
                "step_time_uncertainty": entry.uncertainty,
                "assumed": list(entry.case.assumed),
                "predicted_peak_memory_bytes": entry.predicted_peak_bytes,
                "fits": entry.fits,
                **({"breaks": list(entry.breaks)} if entry.breaks else {}),
            }
            for entry in ledger.entries
        ],
        "skipped": [{"case_id": case_id, "reason": reason} for case_id, reason in ledger.skipped],
        "summary": asdict(ledger.summary),
        "summary_assumed_network": asdict(ledger.assumed_summary),
    }


def as_tables(ledger: Ledger, each: bool, shipped: bool = False) -> list[RenderableType]:
    """The ledger for people: the verdict, cases if requested, errors by group, memory, quality of choices.

    Args:
        ledger: predicted runs.
        each: whether every run is listed.
        shipped: whether the runs are those that ship, on which constants were chosen.
    """
    verdict = "\n".join([headline(ledger), *[CHOSEN] * shipped])
    parts: list[RenderableType] = [verdict] if ledger.summary.n else []
    if each:
        headings = (
            "case",
            "GPU",
            "framework",
            "precision",
            "plan",
            "measured",
            "predicted",
            "error",
            "memory",
            "fits",
        )
        parts.append(table(headings, [_row(entry) for entry in ledger.entries], left=5))
    parts += [_groups(ledger), *_memory(ledger), *_choices(ledger.entries), *_against(ledger)]
    if ledger.skipped:
        rows = [[case_id, reason] for case_id, reason in ledger.skipped]
        parts.append(table(("skipped", "reason"), rows if each else _counted(rows), left=2))
    return parts


def headline(ledger: Ledger) -> str:
    """Errors of all steps and of each kind, how many bands hold, and errors of peak memory."""
    errors = ledger.summary
    parts = [f"Steps of {errors.n:,} measured runs are off by {_two(errors)} (median / 90th percentile)"]
    kinds = ledger.grouped(_kind).items()
    parts += [f"{name.replace(', ', ' in ')} {_two(of_kind)}" for name, of_kind in kinds]
    banded = [
        abs(entry.relative_error) <= entry.uncertainty
        for entry in ledger.entries
        if entry.relative_error is not None and entry.uncertainty is not None and not entry.case.is_guess
    ]
    sentences = [f"{percent(sum(banded) / len(banded), 0)} lie inside their 90 % bands."] if banded else []
    if ledger.memory_summary.n:
        sentences.append(f"Peak memory: {_two(ledger.memory_summary)} ({ledger.memory_summary.n} runs).")
    return "\n".join(fitted(parts, sentences))


def _two(errors: ErrorSummary) -> str:
    """Median and 90th percentile of errors."""
    median, tail = errors.median_abs_error or 0.0, errors.p90_abs_error or 0.0
    return f"{100 * median:.1f} / {percent(tail)}"


def _against(ledger: Ledger) -> list[RenderableType]:
    """Runs that broke a rule of their release, which are predicted as published."""
    runs: dict[str, list[str]] = {}
    for entry in ledger.entries:
        for name in entry.breaks:
            runs.setdefault(name, []).append(entry.case.case_id)
    if not runs:
        return []
    rows = [[name, str(len(cases)), ", ".join(cases[:SHOWN_CASES])] for name, cases in runs.items()]
    return [table(("rule", "runs", "measured although their release rules it out"), rows)]


def _row(entry: PredictedCase) -> list[str]:
    case, error = entry.case, entry.relative_error
    return [
        case.case_id,
        f"{case.setting.cluster.devices} {case.gpu}",
        case.setting.framework.name,
        case.precision,
        f"{case.plan.describe()} mb{case.plan.micro_batch}",
        "" if case.measured_step_s is None else seconds(case.measured_step_s),
        seconds(entry.predicted_step_s),
        "" if error is None else signed_percent(error),
        gibibytes(entry.predicted_peak_bytes),
        "yes" if entry.fits else "no",
    ]


def _kind(case: TrainingCase) -> str:
    if case.experts:
        return "mixture of experts"
    return "dense, 16 bits" if case.precision in SIXTEEN_BITS else "dense, other formats"


def _groups(ledger: Ledger) -> RenderableType:
    by = {
        "GPU": lambda case: case.gpu,
        "framework": lambda case: case.setting.framework.name,
        "precision": lambda case: case.precision,
        "kind": _kind,
    }
    rows = [
        [group, name, *_errors(summary)]
        for group, key in by.items()
        for name, summary in ledger.grouped(key).items()
    ]
    rows.append(["all", "", *_errors(ledger.summary)])
    if ledger.assumed_summary.n:
        rows.append(["apart", "network or micro batch assumed", *_errors(ledger.assumed_summary)])
    headings = ("by", "", "cases", "median error", "90th percentile", "mean error", "bias")
    return table(headings, rows, "Step time, predicted against measured", left=2)


def _errors(summary: ErrorSummary) -> list[str]:
    figures = (summary.median_abs_error, summary.p90_abs_error, summary.mean_abs_error)
    cells = ["" if figure is None else percent(figure) for figure in figures]
    return [str(summary.n), *cells, "" if summary.bias is None else signed_percent(summary.bias)]


def _memory(ledger: Ledger) -> list[RenderableType]:
    if not ledger.entries:
        return []
    summary = ledger.memory_summary
    refused = [entry for entry in ledger.entries if not entry.fits]
    share = percent(len(refused) / len(ledger.entries))
    lines = {"runs refused though they ran": f"{len(refused)} of {len(ledger.entries)} ({share})"}
    if (
        summary.median_abs_error is not None
        and summary.p90_abs_error is not None
        and summary.bias is not None
    ):
        lines["peak memory measured"] = (
            f"{summary.n} cases, median error {percent(summary.median_abs_error)}, "
            f"90th percentile {percent(summary.p90_abs_error)}, bias {signed_percent(summary.bias)}"
        )
    return [facts(lines, "Memory"), ""]


def _choices(entries: Sequence[PredictedCase]) -> list[RenderableType]:
    groups = families(entries)
    if not groups:
        return []
    rows = [
        [family.question, str(family.n), percent(family.regret), f"{family.tau:.2f}"] for family in groups
    ]
    listed = rows[:SHOWN_FAMILIES]
    if len(rows) > len(listed):
        listed.append([f"and {len(rows) - len(listed)} more", "", "", ""])
    regret = np.array([family.regret for family in groups])
    tau = np.average([family.tau for family in groups], weights=[family.n for family in groups])
    listed.append(
        [
            f"all {len(groups)}",
            str(sum(f.n for f in groups)),
            f"median {percent(float(np.median(regret)))}",
            f"{tau:.2f}",
        ]
    )
    headings = ("question with several measured plans", "plans", "first choice over best", "Kendall's tau")
    return [table(headings, listed, "Choosing")]


def _counted(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    reasons: dict[str, int] = {}
    for _, reason in rows:
        reasons[reason] = reasons.get(reason, 0) + 1
    return [[str(count), reason] for reason, count in sorted(reasons.items(), key=lambda item: -item[1])]
