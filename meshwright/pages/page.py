"""Self-contained HTML pages with plotly charts: no external resources, all text escaped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from core.files import write_text
from meshwright import __version__, process

Figure = dict[str, Any]
"""Traces (``data``) and ``layout`` as plotly.js takes them."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, GRID = "#1f2933", "rgba(128,128,128,.25)"

PLOTLY = "plotly-basic-3.7.0.min.js"
"""plotly.js with bars, points and lines only (npm: plotly.js-basic-dist-min, MIT licence)."""
LONG_CELL = 18
"""Characters of a cell of figures from which its words wrap."""
SHORT, SENTENCE = 16, 60
"""Characters up to which a head figure is printed large, and from which it is printed as a sentence."""


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading, a short text, and a chart or a table."""

    heading: str
    words: str
    figure: Figure | None = None
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    words_in: Sequence[int] = (0,)
    """Columns that hold words instead of numbers."""
    hint: str = ""
    """Shown below the chart until a point is clicked, then that point's text (``picks`` of its trace)."""
    panels: Sequence[Figure] = ()
    """Small charts, as many beside each other as the page has room for."""
    html: str = ""
    """Markup of the page's own, already escaped."""
    script: str = ""
    """Script of the page's own, run after all charts are drawn."""


def layout(**changed: Any) -> dict[str, Any]:
    """The common layout of charts, with changes."""
    shared = {
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 70, "r": 20, "t": 10, "b": 45},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"font": {"family": FONT}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    return shared | changed


def figure_of(data: Sequence[Mapping[str, Any]], **shape: Any) -> Figure:
    """A chart of some traces, with changes of the common layout."""
    return {"data": list(data), "layout": layout(**shape)}


def line_at(place: float, **line: Any) -> dict[str, Any]:
    """A line of some style across a chart, at a place of its horizontal axis."""
    return {"type": "line", "yref": "paper", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": line}


def axis(title: str = "", **changed: Any) -> dict[str, Any]:
    """An axis in the style of all charts."""
    shared = {
        "title": {"text": title},
        "gridcolor": "rgba(128,128,128,.25)",
        "zeroline": False,
        "linecolor": "#cbd2d9",
    }
    if changed.get("type") == "log" and "tickvals" not in changed:
        shared |= {"dtick": 1, "exponentformat": "power", "minor": {"ticks": "outside", "dtick": "D1"}}
    return shared | {"automargin": True} | changed


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes:
        title: heading of the page.
        facts: names and values below it.
        sections: parts of the page.
    """

    title: str
    facts: Mapping[str, str]
    sections: Sequence[Section]

    @property
    def figure(self) -> Figure | None:
        """The first chart; None without one."""
        charts = (figure for each in self.sections for figure in (each.figure, *each.panels))
        return next((figure for figure in charts if figure is not None), None)

    def text(self) -> str:
        """The page as HTML."""
        # A figure and its "%" stay on one line.
        fact_texts = {name: value.replace(" %", "\u00a0%") for name, value in self.facts.items()}
        terms = "".join(_fact(name, value) for name, value in fact_texts.items())
        zoom = " Drag to zoom in, double-click to zoom out." if self.figure else ""
        scripts = "\n".join(f"<script>{each.script}</script>" for each in self.sections if each.script)
        parts = "\n".join(_section(index, section) for index, section in enumerate(self.sections))
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(self.title)}</title>
<style>{own_file("page.css")}</style>
</head>
<body>
<main>
<h1>{escape(self.title)}</h1>
<dl>{terms}</dl>
{parts}
<footer>{_asked()}{zoom}</footer>
</main>
<script>{own_file(PLOTLY)}</script>
<script>{own_file("draw.js")}</script>
{scripts}
</body>
</html>
"""

    def write(self, path: Path) -> None:
        """Write the page; the file appears only when it is complete.

        Raises:
            InputError: it cannot be written.
        """
        write_text(path, self.text())


def _asked() -> str:
    """Version, date, and the command that asked; none where Python did."""
    command = f": <code>{escape(process.command)}</code>" if process.command else "."
    return f"Predicted by Meshwright {__version__} on {_date()}{command}"


def _date() -> str:
    """The date in UTC; that of SOURCE_DATE_EPOCH (reproducible-builds.org) where it is set."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = float(stated) if stated.isdigit() and len(stated) < len("253402300800") else time.time()
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _fact(name: str, value: str) -> str:
    mark = ' class="big"' if len(value) <= SHORT and value[:1].isdigit() else ""
    mark = ' class="words"' if len(value) > SENTENCE else mark
    return f"<div><dt>{escape(name)}</dt><dd{mark}>{escape(value)}</dd></div>"


def own_file(name: str) -> str:
    """A file beside this one."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def embedded(name: str, data: Any) -> str:
    """Data of a page's own script."""
    return f'<script type="application/json" id="{name}">{_json(data)}</script>'


def _section(index: int, section: Section) -> str:
    inside = ""
    if section.figure is not None:
        inside += _figure(f"figure-{index}", section.figure)
    if section.panels:
        panels = "".join(
            f"<div>{_figure(f'figure-{index}-{place}', panel)}</div>"
            for place, panel in enumerate(section.panels)
        )
        inside += f'<div class="panels">{panels}</div>'
    if section.hint:
        inside += f'<pre id="figure-{index}-picked">{escape(section.hint)}</pre>'
    if section.columns:
        inside += f'<div class="wide">{_table(section)}</div>'
        inside += (
            '<p class="swipe">Swipe the table for further columns.</p>' if len(section.columns) > 3 else ""
        )
    inside += section.html
    words = f"<p>{escape(section.words)}</p>" if section.words else ""
    return f"<section><h2>{escape(section.heading)}</h2>{words}{inside}</section>"


def _figure(name: str, figure: Figure) -> str:
    height = figure["layout"].get("height", 450)
    return (
        f'<div data-figure="{name}" style="height:{height}px"></div>'
        f'<script type="application/json" id="{name}">{_json(figure)}</script>'
    )


def _json(figure: Any) -> str:
    """JSON escaped for HTML: a name may hold ``</script>``."""
    text = json.dumps(figure, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(section: Section) -> str:
    head = _cells(section, section.columns, "th")
    rows = "".join(f"<tr>{_cells(section, row, 'td')}</tr>" for row in section.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(section: Section, row: Sequence[str], tag: str) -> str:
    kinds = [
        "words" if index in section.words_in else "long" if len(cell) > LONG_CELL else ""
        for index, cell in enumerate(row)
    ]
    marks = [f' class="{kind}"' if kind else "" for kind in kinds]
    return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for mark, cell in zip(marks, row, strict=True))


def label(name: str) -> str:
    """A user's name escaped for plotly, which reads ``<b>`` and ``<a>`` as markup."""
    return escape(name)
