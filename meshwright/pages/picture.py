"""A page's chart as a picture of matplotlib, for notebooks and papers: ``plot()`` of every result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import unescape
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from meshwright.pages.page import Figure

WIDTH_IN, PIXELS_AN_INCH = 9.0, 96.0
MARGIN = 0.05
"""Room above the highest value of an axis from zero, as a share of the axis."""
DASHES = {"dash": "--", "dot": ":", "dashdot": "-."}
MARKERS = {"circle": "o", "circle-open": "o", "diamond": "D", "square": "s", "x": "x"}
COLOUR = re.compile(r"rgba?\(([^)]*)\)")


class ChartPicture(Canvas):
    """A figure of matplotlib that notebooks show by itself."""

    def _repr_png_(self) -> bytes:
        with BytesIO() as file:
            self.savefig(file, format="png", dpi=PIXELS_AN_INCH, bbox_inches="tight")
            return file.getvalue()


def picture(figure: Figure, title: str = "") -> ChartPicture:
    """Draw a page's chart.

    Args:
        figure: traces and layout (bars, points and lines) as pages hold them.
        title: above it; empty for none.
    """
    shape = figure["layout"]
    drawn = ChartPicture(figsize=(WIDTH_IN, shape.get("height", 450) / PIXELS_AN_INCH), layout="constrained")
    pairs = list(dict.fromkeys(_pair(trace) for trace in figure["data"])) or [("x", "y")]
    axes = _axes(drawn, pairs, shape)
    floors: dict[tuple[str, str], dict[Any, float]] = {pair: {} for pair in pairs}
    stacked = shape.get("barmode") == "stack"
    for trace in figure["data"]:
        pair = _pair(trace)
        if trace["type"] == "bar":
            _bar(axes[pair], trace, floors[pair] if stacked else None)
        else:
            _scatter(axes[pair], trace, floors[pair])
    for pair, panel in axes.items():
        _dress(panel, shape.get(f"xaxis{pair[0][1:]}", {}), shape.get(f"yaxis{pair[1][1:]}", {}))
    for line in shape.get("shapes", ()):
        _line(axes, line)
    if title:
        drawn.suptitle(_plain(title), x=0.01, ha="left", fontsize="medium")
    labels = {name: handle for panel in axes.values() for handle, name in zip(*_legend(panel), strict=True)}
    if shape.get("showlegend", len(labels) > 1) and labels:
        columns = min(len(labels), 5)
        drawn.legend(
            labels.values(), labels, loc="outside lower left", ncols=columns, fontsize="small", frameon=False
        )
    return drawn


def _pair(trace: Mapping[str, Any]) -> tuple[str, str]:
    return trace.get("xaxis", "x"), trace.get("yaxis", "y")


def _axes(
    drawn: ChartPicture, pairs: Sequence[tuple[str, str]], shape: Mapping[str, Any]
) -> dict[tuple[str, str], Axes]:
    """One panel for each pair of axes, at the axes' shares of the width and the height."""
    places = []
    for x, y in pairs:
        across = shape.get(f"xaxis{x[1:]}", {}).get("domain", [0, 1])
        upward = shape.get(f"yaxis{y[1:]}", {}).get("domain", [0, 1])
        places.append((across, upward))
    rows = sorted({tuple(upward) for _, upward in places}, reverse=True)
    columns = sorted({tuple(across) for across, _ in places})
    grid = drawn.add_gridspec(
        len(rows),
        len(columns),
        height_ratios=[high - low for low, high in rows],
        width_ratios=[high - low for low, high in columns],
    )
    panels: dict[tuple[str, str], Axes] = {}
    for pair, (across, upward) in zip(pairs, places, strict=True):
        place = grid[rows.index(tuple(upward)), columns.index(tuple(across))]
        same = next((panel for (x, _), panel in panels.items() if x == pair[0]), None)
        panels[pair] = drawn.add_subplot(place, sharex=same)
    return panels


def _scatter(panel: Axes, trace: Mapping[str, Any], floors: dict[Any, float]) -> None:
    """Points, lines, filled areas and texts."""
    y = list(trace["y"])
    x = list(trace["x"]) if "x" in trace else [trace["x0"] + trace["dx"] * at for at in range(len(y))]
    mode, line, marker = trace.get("mode", "lines"), trace.get("line", {}), trace.get("marker", {})
    colour = _colour(trace.get("fillcolor") or line.get("color") or marker.get("color"))
    name = _plain(trace["name"]) if trace.get("name") and trace.get("showlegend", True) else None
    if "stackgroup" in trace:
        below = np.array([floors.get(at, 0.0) for at in x])
        floors.update(zip(x, below + np.array(y), strict=True))
        panel.fill_between(x, below, below + np.array(y), color=colour, linewidth=0, label=name)
        return
    if trace.get("fill") == "tozeroy":
        panel.fill_between(x, 0, y, color=colour, alpha=0.4, step="post")
    if "lines" in mode:
        style = "steps-post" if line.get("shape") == "hv" else "default"
        width, dash = line.get("width", 1.5), DASHES.get(line.get("dash", ""), "-")
        panel.plot(x, y, color=colour, linewidth=width, linestyle=dash, drawstyle=style, label=name)
        name = None
    if "markers" in mode:
        symbol = marker.get("symbol", "circle")
        look = (
            {"color": colour} if not symbol.endswith("open") else {"facecolors": "none", "edgecolors": colour}
        )
        size, alpha = marker.get("size", 6) ** 2 / 2, marker.get("opacity", 1.0)
        panel.scatter(
            x, y, s=size, alpha=alpha, marker=MARKERS.get(symbol, "o"), label=name, zorder=3, **look
        )
    for key in ("error_x", "error_y"):
        if key in trace:
            bars = [trace[key].get("arrayminus", trace[key]["array"]), trace[key]["array"]]
            side: dict[str, Any] = {"xerr" if key == "error_x" else "yerr": bars}
            panel.errorbar(x, y, **side, fmt="none", ecolor=colour, elinewidth=0.8, capsize=2)
    if "text" in mode:
        right = "right" in trace.get("textposition", "")
        offset = {"xytext": (4, 0), "va": "center"} if right else {"xytext": (0, 6), "ha": "center"}
        for place in zip(x, y, trace["text"], strict=True):
            panel.annotate(
                _plain(place[2]), place[:2], textcoords="offset points", fontsize="small", **offset
            )


def _bar(panel: Axes, trace: Mapping[str, Any], floors: dict[Any, float] | None) -> None:
    """Bars, on top of those before where floors are kept."""
    lying = trace.get("orientation") == "h"
    places, lengths = (trace["y"], trace["x"]) if lying else (trace["x"], trace["y"])
    starts = list(trace.get("base", [0.0] * len(places)))
    if floors is not None:
        starts = [floors.get(place, 0.0) for place in places]
        floors.update(
            {place: start + length for place, start, length in zip(places, starts, lengths, strict=True)}
        )
    colour = _colours(trace.get("marker", {}))
    thick = trace.get("width", 0.75)
    name = _plain(trace["name"]) if trace.get("name") else None
    if lying:
        panel.barh(places, lengths, height=thick, left=starts, color=colour, label=name)
    else:
        panel.bar(places, lengths, width=thick, bottom=starts, color=colour, label=name)
    for place, start, length, text in zip(places, starts, lengths, trace.get("text", ()), strict=False):
        middle = start + length / 2
        at = (middle, place) if lying else (place, middle)
        panel.annotate(_plain(text), at, ha="center", va="center", fontsize="small")


def _colours(marker: Mapping[str, Any]) -> Any:
    """One colour, or one a bar on the scale that the chart states."""
    values = marker.get("color")
    if not isinstance(values, list) or isinstance(values[0], str):
        return [_colour(value) for value in values] if isinstance(values, list) else _colour(values)
    scale = LinearSegmentedColormap.from_list("scale", [tuple(stop) for stop in marker["colorscale"]])
    return scale(
        Normalize(min(values), max(values) if max(values) > min(values) else min(values) + 1)(values)
    )


def _dress(panel: Axes, x: Mapping[str, Any], y: Mapping[str, Any]) -> None:
    """Names, scales, ticks and ends of both axes."""
    for axis, stated, name in ((panel.xaxis, x, "x"), (panel.yaxis, y, "y")):
        if title := stated.get("title", {}).get("text"):
            axis.set_label_text(_plain(title))
        logarithmic = stated.get("type") == "log"
        if logarithmic:
            (panel.set_xscale if name == "x" else panel.set_yscale)("log")
        low, high = panel.get_xlim() if name == "x" else panel.get_ylim()
        if "range" in stated and not logarithmic:
            low, high = stated["range"]
        elif stated.get("rangemode") == "tozero":
            low, high = min(low, 0.0), high + MARGIN * (high - min(low, 0.0))
        if stated.get("autorange") == "reversed":
            low, high = max(low, high), min(low, high)
        if "tickvals" in stated:
            texts = [_plain(str(text)) for text in stated.get("ticktext", stated["tickvals"])]
            axis.set_ticks(stated["tickvals"], labels=texts)
        elif stated.get("tickformat", "").endswith("%"):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        elif logarithmic:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if logarithmic:
            axis.set_minor_formatter(NullFormatter())
        # Ticks beyond the ends would widen the axis.
        (panel.set_xlim if name == "x" else panel.set_ylim)(low, high)
    panel.grid(visible=True, color="#d5dae0", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _line(axes: Mapping[tuple[str, str], Axes], line: Mapping[str, Any]) -> None:
    """A line across a panel: upright where both ends have one x."""
    x, y = line.get("xref", "x"), line.get("yref", "y")
    panel = next(
        (axis for pair, axis in axes.items() if x in ("paper", pair[0]) and y in ("paper", pair[1])), None
    )
    panel = panel or next(axis for pair, axis in axes.items() if pair[0] == x or pair[1] == y)
    look = {
        "color": _colour(line["line"].get("color")),
        "linestyle": DASHES.get(line["line"].get("dash", ""), "-"),
    }
    upright = x != "paper" and line["x0"] == line["x1"]
    if upright:
        panel.axvline(line["x0"], linewidth=1.2, **look)
    else:
        panel.axhline(line["y0"], linewidth=1.2, **look)


def _legend(panel: Axes) -> tuple[list[Any], list[str]]:
    return panel.get_legend_handles_labels()


def _colour(text: Any) -> Any:
    """A colour as matplotlib reads it: ``rgb(1,2,3)`` becomes shares."""
    matched = COLOUR.fullmatch(text.strip()) if isinstance(text, str) else None
    if matched is None:
        return text if text else "#2c6fbb"
    parts = [float(part) for part in matched[1].split(",")]
    return (*(part / 255 for part in parts[:3]), *parts[3:])


def _plain(text: str) -> str:
    """Text without the markup that plotly reads, and without what matplotlib reads as mathematics."""
    return unescape(re.sub(r"<br\s*/?>", "\n", text)).replace("$", r"\$")
