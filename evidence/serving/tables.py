"""A ledger of predicted and measured serving runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from evidence.serving.ledger import MetricSummary, PredictedMetric, ServingLedger
from evidence.serving.shares import ConstantShare, constant_shares
from meshwright.reports.tables import table
from meshwright.reports.units import percent, signed_percent


def as_json(ledger: ServingLedger) -> dict[str, Any]:
    """The ledger with documented keys; values in the unit of the measured column."""
    return {
        "cases": [_entry(entry) for entry in ledger.entries],
        "skipped": [{"case_id": case_id, "reason": reason} for case_id, reason in ledger.skipped],
        "summary": [_summary(summary) for summary in ledger.summaries()],
        "rows": rows_of(ledger),
        "constant_shares": [asdict(share) for share in _shares(ledger)],
    }


def rows_of(ledger: ServingLedger) -> dict[str, float]:
    """Numbers of rows predicted and skipped, and the share of those skipped."""
    predicted = len({(entry.case.file, entry.case.case_id) for entry in ledger.entries})
    skipped = len(ledger.skipped)
    return {
        "predicted": predicted,
        "skipped": skipped,
        "skipped_share": skipped / max(predicted + skipped, 1),
    }


def _shares(ledger: ServingLedger) -> list[ConstantShare]:
    """Constants that take over half of the steps of some rows."""
    return constant_shares({entry.case.case_id: entry.case for entry in ledger.entries}.values())


def _entry(entry: PredictedMetric) -> dict[str, Any]:
    return {
        "case_id": entry.case.case_id,
        "metric": entry.metric,
        "predicted": entry.predicted,
        "measured": entry.measured,
        "relative_error": entry.relative_error,
        "flagged": entry.case.flagged,
    }


def _summary(summary: MetricSummary) -> dict[str, Any]:
    return {
        "file": summary.file,
        "engine": summary.engine,
        "gpu": summary.gpu,
        "metric": summary.metric,
        "flagged": summary.flagged,
        "n": summary.n,
        "median_abs_error": summary.median_abs_error,
        "p90_abs_error": summary.p90_abs_error,
        "bias": summary.bias,
    }


def as_tables(ledger: ServingLedger, each: bool) -> list[RenderableType]:
    """The ledger for people: errors by file and metric, by engine and GPU, and by row if requested."""
    parts: list[RenderableType] = []
    if each:
        rows = [
            [
                entry.case.case_id,
                entry.metric,
                f"{entry.measured:.4g}",
                f"{entry.predicted:.4g}",
                signed_percent(entry.relative_error),
            ]
            for entry in ledger.entries
        ]
        parts.append(table(("case", "metric", "measured", "predicted", "error"), rows, left=2))
    counted = rows_of(ledger)
    heading = f"{counted['predicted']:,} rows predicted, {counted['skipped']:,} skipped"
    parts.append(f"{heading} ({percent(counted['skipped_share'])} of all; reasons below)")
    parts.append(_errors("all rows", ledger.summaries(lambda e: (e.case.file, "", "", e.metric))))
    parts.append(
        _errors("by engine and GPU", [summary for summary in ledger.summaries() if not summary.flagged])
    )
    if shares := _shares(ledger):
        headings = ("engine", "GPU", "model", "constant", "share of a decode step", "rows")
        lines = [
            [share.engine, share.gpu, share.model, share.constant, percent(share.share), str(share.rows)]
            for share in shares
        ]
        parts.append(table(headings, lines, left=4, title="constants over half of a step"))
    if ledger.skipped:
        counts: dict[str, int] = {}
        for _, reason in ledger.skipped:
            counts[reason] = counts.get(reason, 0) + 1
        skipped = [
            [str(count), reason] for reason, count in sorted(counts.items(), key=lambda item: -item[1])
        ]
        parts.append(table(("rows", "skipped because"), skipped, left=2))
    return parts


def _errors(title: str, summaries: list[MetricSummary]) -> RenderableType:
    rows = [
        [
            summary.file,
            summary.engine,
            summary.gpu,
            summary.metric + (" (flagged)" if summary.flagged else ""),
            str(summary.n),
            percent(summary.median_abs_error),
            percent(summary.p90_abs_error),
            signed_percent(summary.bias),
        ]
        for summary in summaries
    ]
    headings = ("file", "engine", "GPU", "metric", "n", "median", "p90", "bias")
    return table(headings, rows, left=4, title=title)
