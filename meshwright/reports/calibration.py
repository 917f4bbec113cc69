"""A fit of a device: its files, its errors on shapes that it did not see, and a page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.table import Table

from hwmodels.device import Device
from hwmodels.files import write_text
from hwmodels.loading import FORMAT
from meshwright.reports.tables import facts, table
from meshwright.reports.units import percent
from profiles.fitting import Fit, write_calibration
from profiles.fitting.entry import Unseen

COLUMNS = 3
MOST_DRAWN = 1000
"""Points drawn of one entry; more only make the page heavy."""


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
    rows = [
        [row["operation"], row["dtype"], row["library"], str(row["points"]), *_errors(row)]
        for row in fit.errors
    ]
    headings = ("kernel", "dtype", "library", "points", "median", "90th pct", "with points", "90th pct")
    parts = [
        table(headings, rows, "Error on shapes kept out: of the form, and with its points beside it", left=3)
    ]
    lines = {"written": ", ".join(str(path) for path in written)}
    if fit.dropped:
        lines["dropped"] = f"{fit.dropped} points that are faster than the device can be"
    if fit.missing:
        lines["not fitted"] = "; ".join(fit.missing)
    return [*parts, facts(lines)]


def _errors(row: dict[str, Any]) -> list[str]:
    alone, beside = row["error"], row["error_with_points"] or {}
    values = (alone["median"], alone["p90"], beside.get("median"), beside.get("p90"))
    return ["" if value is None else percent(value) for value in values]


def write_device(fit: Fit, device: Device, path: Path) -> list[Path]:
    """Write the device's YAML, and beside it the calibration that it names.

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


def write_page(fit: Fit, name: str, path: Path) -> Path:
    """Draw predicted against measured times of the shapes kept out, one panel an entry, on one HTML page."""
    from plotly.subplots import make_subplots

    titles = [
        f"{escape(entry.replace('/', ' '))}: {len(unseen.measured_s)} shapes"
        for entry, unseen in fit.unseen.items()
    ]
    columns = min(COLUMNS, len(titles))
    rows = -(-len(titles) // columns)
    figure = make_subplots(rows=rows, cols=columns, subplot_titles=titles)
    for index, unseen in enumerate(fit.unseen.values()):
        row, column = divmod(index, columns)
        for trace in _traces(unseen, legend=index == 0):
            figure.add_trace(trace, row=row + 1, col=column + 1)
    figure.update_xaxes(type="log", title="measured, s")
    figure.update_yaxes(type="log", title="predicted, s")
    figure.update_layout(
        title=f"{escape(name)}: kernels on shapes kept out of the fit", height=380 * rows + 120
    )
    write_text(path, figure.to_html(include_plotlyjs=True, full_html=True))
    return path


def _traces(unseen: Unseen, legend: bool) -> list[Any]:
    from plotly.graph_objects import Scatter

    step = -(-len(unseen.measured_s) // MOST_DRAWN) or 1
    measured = np.asarray(unseen.measured_s)[::step]
    ends = [float(measured.min()), float(measured.max())]
    series = {"form alone": unseen.form_s, "with points": unseen.corrected_s}
    colours = {"form alone": "#999999", "with points": "#1f77b4"}
    points = [
        Scatter(
            x=measured,
            y=np.asarray(values)[::step],
            mode="markers",
            marker={"size": 4, "color": colours[name], "opacity": 0.6},
            name=name,
            legendgroup=name,
            showlegend=legend,
        )
        for name, values in series.items()
        if values is not None
    ]
    exact = Scatter(x=ends, y=ends, mode="lines", line={"color": "black", "width": 1}, showlegend=False)
    return [*points, exact]
