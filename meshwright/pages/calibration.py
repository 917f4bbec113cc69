"""A fit of a device as an HTML page: predicted against measured on held-out shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label
from meshwright.reports.calibration import HEADINGS, error_rows
from profiles.fitting import Fit
from profiles.fitting.calibration_entry import Unseen

PANEL_HEIGHT = 300
"""Height of an entry's chart, px."""
MOST_DRAWN = 1000
"""Maximum number of points drawn per entry; bounds the size of the page."""

COLOURS = {"form alone": "#9aa5b1", "with points": "#2c6fbb"}


def calibration_page(fit: Fit, name: str) -> Page:
    """The page of a fit.

    Args:
        fit: the fitted device.
        name: of the device.
    """
    points = sum(row["points"] for row in fit.errors)
    words = (
        "Each dot is a shape that the fit did not see; on the line, prediction and measurement agree. "
        "Grey: the fitted form alone. Blue: corrected by what it missed at the points beside the shape."
    )
    panels = [_panel(entry, points) for entry, points in fit.unseen.items()]
    sections = [
        Section("Predicted against measured", words, panels=panels),
        Section(
            "Errors", "Relative errors on the shapes kept out.", None, HEADINGS, error_rows(fit), (0, 1, 2)
        ),
    ]
    return Page(f"{name}: kernels on shapes kept out of the fit", {"points": f"{points:,}"}, sections)


def _panel(entry: str, points: Unseen) -> Figure:
    """Predicted against measured of one entry."""
    decades = {"type": "log", "dtick": 1, "exponentformat": "power", "showexponent": "all"}
    title = f"{label(entry.replace('/', ' '))}: {len(points.measured_s):,} shapes"
    return figure_of(
        _traces(points),
        height=PANEL_HEIGHT,
        title={"text": title, "font": {"size": 13}, "x": 0.5, "y": 0.97, "yanchor": "top"},
        margin={"l": 60, "r": 15, "t": 35, "b": 45},
        showlegend=False,
        xaxis=axis("measured, s", **decades),
        yaxis=axis("predicted, s", **decades),
    )


def _traces(unseen: Unseen) -> list[dict[str, Any]]:
    step = -(-len(unseen.measured_s) // MOST_DRAWN) or 1
    measured = np.asarray(unseen.measured_s)[::step]
    series = {"form alone": unseen.form_s, "with points": unseen.corrected_s}
    points = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
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
