"""Parts of a ledger: rows that constants were chosen on, rows left out, rows kept apart."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from evidence.training.parts import PARTS, PartedLedger, PartFigures
from meshwright.reports.tables import table
from meshwright.reports.units import percent, signed_percent


def as_json(parted: PartedLedger) -> dict[str, Any]:
    """Figures by class and part; rows kept apart appear in no list of cases."""
    return {
        "parts": {
            name: {part: asdict(figures) for part, figures in by_part.items()}
            for name, by_part in parted.figures().items()
        },
        "rows_in_no_figure": parted.no_figure,
    }


def as_tables(parted: PartedLedger) -> list[RenderableType]:
    """One table: a line for each class, a column for each part."""
    rows = [[name, *(_shown(by_part[part]) for part in PARTS)] for name, by_part in parted.figures().items()]
    title = (
        "Rows; median / 90th percentile / mean signed error. "
        f"{parted.no_figure} rows of low trust are in no figure"
    )
    return [table(("", *PARTS), rows, title, left=1)]


def _shown(figures: PartFigures) -> str:
    errors = figures.errors
    if errors is None:
        return share_words(figures)
    if errors.median_abs_error is None or errors.p90_abs_error is None or errors.bias is None:
        return ""
    sizes = f"{percent(errors.median_abs_error)} / {percent(errors.p90_abs_error)}"
    return f"{errors.n}: {sizes} / {signed_percent(errors.bias)}"


def share_words(figures: PartFigures) -> str:
    """A share of rows; of those inside their bands also the median half-width and the number of sources."""
    several = figures.sources is not None and figures.sources > 1
    words = [counted(figures), half_width(figures), f"{figures.sources} sources" if several else ""]
    return ", ".join(filter(None, words))


def counted(figures: PartFigures) -> str:
    """A share of rows."""
    share = f" ({percent(figures.count / figures.of)})" if figures.of else ""
    return f"{figures.count} of {figures.of}{share}"


def half_width(figures: PartFigures) -> str:
    """The median half-width of some bands; empty without one."""
    return "" if figures.half_width is None else f"± {percent(figures.half_width)}"
