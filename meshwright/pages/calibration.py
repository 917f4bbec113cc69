"""A fit of a device as an HTML page: predicted against measured on held-out shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.pages.page import Figure, Section, axis, label, layout, write_page
from meshwright.reports.calibration import HEADINGS, error_rows
from profiles.fitting import Fit
from profiles.fitting.entry import Unseen

COLUMNS = 3
PANEL_HEIGHT = 330
MOST_DRAWN = 1000
"""Maximum number of points drawn per entry; bounds the size of the page."""

COLOURS = {"form alone": "#9aa5b1", "with points": "#2c6fbb"}


def write_calibration(path: Path, fit: Fit, name: str) -> None:
    """Write the page of a fit.

    Args:
        path: the HTML file; it appears only when it is complete.
        fit: the fitted device.
        name: of the device.

    Raises:
        InputError: the file cannot be written.
    """
    points = sum(row["points"] for row in fit.errors)
    words = (
        "Each dot is a shape that the fit did not see; on the line, prediction and measurement agree. "
        "With points: the form corrected by what it missed at the points beside the shape."
    )
    sections = [
        Section("Predicted against measured", words, _panels(fit.unseen)),
        Section(
            "Errors", "Relative errors on the shapes kept out.", None, HEADINGS, error_rows(fit), (0, 1, 2)
        ),
    ]
    write_page(path, f"{name}: kernels on shapes kept out of the fit", {"points": f"{points:,}"}, sections)


def _panels(unseen: dict[str, Unseen]) -> Figure:
    """One panel per entry, three in a row."""
    columns = min(COLUMNS, len(unseen))
    rows = -(-len(unseen) // columns)
    data: list[dict[str, Any]] = []
    titles: list[dict[str, Any]] = []
    axes: dict[str, dict[str, Any]] = {}
    shown: set[str] = set()
    for number, (entry, points) in enumerate(unseen.items(), 1):
        place = "" if number == 1 else str(number)
        for trace in _traces(points):
            first = trace.get("name") is not None and trace["name"] not in shown
            shown.add(trace.get("name", ""))
            data.append(trace | {"xaxis": f"x{place}", "yaxis": f"y{place}", "showlegend": first})
        decades = {"type": "log", "dtick": 1, "exponentformat": "power", "showexponent": "all"}
        axes[f"xaxis{place}"] = axis("measured, s", anchor=f"y{place}", **decades)
        axes[f"yaxis{place}"] = axis("predicted, s", anchor=f"x{place}", **decades)
        titles.append(
            {
                "text": f"{label(entry.replace('/', ' '))}: {len(points.measured_s):,} shapes",
                "xref": f"x{place} domain",
                "yref": f"y{place} domain",
                "x": 0.5,
                "y": 1.01,
                "yanchor": "bottom",
                "showarrow": False,
            }
        )
    return {
        "data": data,
        "layout": layout(
            height=PANEL_HEIGHT * rows + 60,
            grid={"rows": rows, "columns": columns, "pattern": "independent", "xgap": 0.22, "ygap": 0.35},
            annotations=titles,
            legend={"orientation": "h", "x": 0, "y": 1 + 60 / (PANEL_HEIGHT * rows), "yanchor": "bottom"},
            margin={"l": 70, "r": 20, "t": 60, "b": 45},
            **axes,
        ),
    }


def _traces(unseen: Unseen) -> list[dict[str, Any]]:
    step = -(-len(unseen.measured_s) // MOST_DRAWN) or 1
    measured = np.asarray(unseen.measured_s)[::step]
    series = {"form alone": unseen.form_s, "with points": unseen.corrected_s}
    points = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "legendgroup": name,
            "x": _short(measured),
            "y": _short(np.asarray(values)[::step]),
            "marker": {"size": 5, "color": COLOURS[name], "opacity": 0.65},
            "hovertemplate": f"measured %{{x:.3g}} s, predicted %{{y:.3g}} s<extra>{name}</extra>",
        }
        for name, values in series.items()
        if values is not None
    ]
    ends = _short(np.array([measured.min(), measured.max()]))
    exact = {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip"}
    return [exact | {"line": {"color": "#1f2933", "width": 1}}, *points]


def _short(seconds: NDArray[np.floating]) -> list[float]:
    return [float(f"{each:.4g}") for each in seconds.tolist()]
