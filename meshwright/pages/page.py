"""Self-contained HTML pages with plotly charts: no external resources, all text escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hwmodels.files import write_text

Figure = dict[str, Any]
"""Traces (``data``) and ``layout`` as plotly.js takes them."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, FAINT, RULE = "#1f2933", "#616e7c", "#e4e7eb"

STYLE = f"""
:root {{ color-scheme: light; }}
body {{ margin: 0; background: #f5f7fa; color: {INK}; font: 15px/1.5 {FONT}; }}
main {{ max-width: 1280px; margin: 0 auto; padding: 24px 20px 60px; }}
h1 {{ font-size: 24px; line-height: 1.3; margin: 8px 0 4px; }}
h2 {{ font-size: 17px; margin: 0 0 2px; }}
section {{ background: #fff; border: 1px solid {RULE}; border-radius: 10px; }}
section {{ padding: 18px 20px; margin: 16px 0; }}
p {{ margin: 0 0 8px; color: {FAINT}; }}
dl {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(215px, 1fr)); gap: 10px 24px; }}
dl {{ margin: 14px 0; }}
dt {{ color: {FAINT}; font-size: 12px; text-transform: uppercase; letter-spacing: .04em; }}
dd {{ margin: 0; font-weight: 600; overflow-wrap: anywhere; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px; }}
th, td {{ text-align: right; padding: 5px 10px; border-bottom: 1px solid {RULE}; white-space: nowrap; }}
th {{ color: {FAINT}; font-weight: 600; }}
th.words, td.words {{ text-align: left; white-space: normal; min-width: 170px; }}
pre {{ background: #f5f7fa; border-radius: 6px; padding: 10px 12px; margin: 8px 0 0; white-space: pre-wrap; }}
footer {{ color: {FAINT}; font-size: 13px; }}
"""

DRAW = """
const options = {displaylogo: false, responsive: true, modeBarButtons: [["toImage"]]};
for (const box of document.querySelectorAll("[data-figure]")) {
  const figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
  Plotly.newPlot(box, figure.data, figure.layout, options);
  const picked = document.getElementById(box.dataset.figure + "-picked");
  if (picked) box.on("plotly_click", (event) => {
    const text = event.points[0].data.picks;
    if (text) picked.textContent = text[event.points[0].pointNumber];
  });
}
"""


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


def layout(**changed: Any) -> dict[str, Any]:
    """The common layout of charts, with changes."""
    shared = {
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 70, "r": 20, "t": 10, "b": 45},
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "hoverlabel": {"font": {"family": FONT}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    return shared | changed


def axis(title: str = "", **changed: Any) -> dict[str, Any]:
    """An axis in the style of all charts."""
    shared = {"title": {"text": title}, "gridcolor": RULE, "zeroline": False, "linecolor": "#cbd2d9"}
    return shared | {"automargin": True} | changed


def page(title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """A whole HTML page.

    Args:
        title: heading of the page.
        facts: names and values below it.
        sections: parts of the page.
    """
    from plotly.offline import get_plotlyjs

    # A figure and its "%" stay on one line.
    shown = {name: value.replace(" %", "\u00a0%") for name, value in facts.items()}
    terms = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in shown.items())
    parts = "\n".join(_section(index, section) for index, section in enumerate(sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<dl>{terms}</dl>
{parts}
<footer>Predicted by Meshwright. Drag to zoom in, double-click to zoom out.</footer>
</main>
<script>{get_plotlyjs()}</script>
<script>{DRAW}</script>
</body>
</html>
"""


def _section(index: int, section: Section) -> str:
    inside = ""
    if section.figure is not None:
        height = section.figure["layout"].get("height", 450)
        inside += (
            f'<div data-figure="figure-{index}" style="height:{height}px"></div>'
            f'<script type="application/json" id="figure-{index}">{_json(section.figure)}</script>'
        )
    if section.hint:
        inside += f'<pre id="figure-{index}-picked">{escape(section.hint)}</pre>'
    if section.columns:
        inside += f'<div class="wide">{_table(section)}</div>'
    words = f"<p>{escape(section.words)}</p>" if section.words else ""
    return f"<section><h2>{escape(section.heading)}</h2>{words}{inside}</section>"


def _json(figure: Figure) -> str:
    """JSON escaped for HTML: a name may hold ``</script>``."""
    text = json.dumps(figure, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _table(section: Section) -> str:
    head = _cells(section, section.columns, "th")
    rows = "".join(f"<tr>{_cells(section, row, 'td')}</tr>" for row in section.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(section: Section, row: Sequence[str], tag: str) -> str:
    marks = [' class="words"' if index in section.words_in else "" for index in range(len(row))]
    return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for mark, cell in zip(marks, row, strict=True))


def label(name: str) -> str:
    """A user's name escaped for plotly, which reads ``<b>`` and ``<a>`` as markup."""
    return escape(name)


def write_page(path: Path, title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> None:
    """Write a page; the file appears only when it is complete.

    Raises:
        InputError: it cannot be written.
    """
    write_text(path, page(title, facts, sections))
