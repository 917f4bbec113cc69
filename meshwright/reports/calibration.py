"""A fit of a device: its files, and its errors on held-out shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from core.files import write_text
from core.loading import FORMAT
from hwmodels.device import Device
from meshwright.reports.tables import facts, table
from meshwright.reports.units import percent
from profiles.fitting import Fit, write_calibration

HEADINGS = ("kernel", "dtype", "library", "points", "median", "90th pct", "with points", "90th pct")
TOO_FEW = "too few"


def as_json(fit: Fit, written: Sequence[Path]) -> dict[str, Any]:
    """The fit with documented keys."""
    return {
        "files": [str(path) for path in written],
        "entries": fit.errors,
        "dropped": fit.dropped,
        "missing": fit.missing,
    }


def as_tables(fit: Fit, written: Sequence[Path]) -> list[Table]:
    """The fit for people."""
    title = "Error on shapes kept out: of the form, and with its points beside it"
    parts = [table(HEADINGS, error_rows(fit), title, left=3)]
    lines = {"written": ", ".join(str(path) for path in written)}
    if fit.dropped:
        lines["dropped"] = f"{fit.dropped} points that are faster than the device can be"
    if fit.missing:
        lines["not fitted"] = "; ".join(fit.missing)
    return [*parts, facts(lines)]


DOUBTFUL, UNUSABLE = (0.15, 0.5), (0.3, 0.9)
"""Median and 90th percentile of an entry's error that give a warning, and that refuse the fit."""


def doubts(fit: Fit) -> list[str]:
    """One line per entry with a large error on held-out shapes."""
    return [f"{words}: measure again on an idle machine" for words in _beyond(fit, DOUBTFUL)]


def refusal(fit: Fit) -> str:
    """Reason to refuse a fit; empty if accepted."""
    unusable = _beyond(fit, UNUSABLE)
    if not unusable:
        return ""
    return (
        f"{'; '.join(unusable)}: the points scatter too much; measure again on an idle machine, or give --yes"
    )


def _beyond(fit: Fit, limits: tuple[float, float]) -> list[str]:
    """Entries whose error reaches one of two limits; the better of the form alone and with points counts."""
    parts = []
    for row in fit.errors:
        sides = [side for side in (row["error"], row["error_with_points"]) if side and side.get("shapes")]
        best = min(sides, key=lambda side: side["median"], default=None)
        if best is not None and (best["median"] >= limits[0] or best["p90"] >= limits[1]):
            name = f"{row['operation']} {row['dtype']} {row['library']}".strip()
            error = f"{percent(best['median'])} median, {percent(best['p90'])} at the 90th percentile"
            parts.append(f"{name} errs by {error} on shapes kept out")
    return parts


def error_rows(fit: Fit) -> list[list[str]]:
    """The errors of each entry, under ``HEADINGS``."""
    return [
        [row["operation"], row["dtype"], row["library"], str(row["points"]), *_errors(row)]
        for row in fit.errors
    ]


def _errors(row: dict[str, Any]) -> list[str]:
    alone, beside = row["error"], row["error_with_points"] or {}
    if not alone["shapes"]:
        return [TOO_FEW, "", "", ""]
    values = (alone["median"], alone["p90"], beside.get("median"), beside.get("p90"))
    return ["" if value is None else percent(value) for value in values]


def write_device(fit: Fit, device: Device, path: Path) -> list[Path]:
    """Write the device's YAML and its calibration beside it.

    Returns:
        The files written.
    """
    calibration = path.with_name(f"{path.stem}.calibration.yaml")
    source = f"{sum(row['points'] for row in fit.errors)} points; each entry names its own"
    written = write_calibration(replace(fit, calibration={**fit.calibration, "source": source}), calibration)
    content = device.model_dump(mode="json", exclude_defaults=True)
    content |= {"format": FORMAT, "calibration": f"./{calibration.name}"}
    write_text(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return [path, *written]
