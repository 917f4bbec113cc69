"""Left-out errors of published runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from evidence.training.leave_out import LeftOutFigures, LeftOutLedger
from evidence.training.part_tables import counted, half_width
from meshwright.reports.tables import table
from meshwright.reports.units import percent, signed_percent
from meshwright.validation.ledger import ErrorSummary

EVIDENCE_WORDS = {
    "framework and device": "framework on this device",
    "device": "this device, or the framework on its family",
    "family": "the device's family",
    "none": "nowhere near",
}
"""What other sources measured, by ``simulator.uncertainty.EVIDENCE``."""


def as_json(ledger: LeftOutLedger) -> dict[str, Any]:
    """Figures by evidence, class and source, and the error of each run."""
    groups = {"evidence": ledger.by_evidence(), "class": ledger.by_class(), "source": ledger.by_source()}
    return {
        "left_out": {
            **{f"by_{name}": _plain(figures) for name, figures in groups.items()},
            "runs": [
                {
                    "case_id": run.shipped.case.case_id,
                    "evidence": run.evidence,
                    "relative_error": run.shipped.relative_error,
                    "relative_error_left_out": run.left_out.relative_error,
                }
                for run in ledger.runs
            ],
        }
    }


def as_tables(ledger: LeftOutLedger) -> list[RenderableType]:
    """A table by evidence and class, and one by source."""
    headings = ("runs", "all constants", "source left out", "inside the band", "its width", "sources")
    evidence = [_row(EVIDENCE_WORDS[name], figures) for name, figures in ledger.by_evidence().items()]
    classes = [_row(name, figures) for name, figures in ledger.by_class().items()]
    sources = [_row(name, figures) for name, figures in ledger.by_source().items()]
    title = "Steps predicted without the constants chosen on their source; median / p90 / mean signed error"
    return [
        table(("measured by other sources", *headings), evidence, title, left=1),
        table(("class", *headings), classes, "", left=1),
        table(("source", *headings), sources, "", left=1),
    ]


def _plain(figures: dict[str, LeftOutFigures]) -> dict[str, Any]:
    return {name: asdict(group) for name, group in figures.items()}


def _row(name: str, figures: LeftOutFigures) -> list[str]:
    band, errors = figures.band, (_shown(figures.shipped), _shown(figures.left_out))
    sources = "" if band.sources is None else str(band.sources)
    return [name, str(figures.left_out.n), *errors, counted(band), half_width(band), sources]


def _shown(errors: ErrorSummary) -> str:
    if errors.median_abs_error is None or errors.p90_abs_error is None or errors.bias is None:
        return ""
    sizes = f"{percent(errors.median_abs_error)} / {percent(errors.p90_abs_error)}"
    return f"{sizes} / {signed_percent(errors.bias)}"
