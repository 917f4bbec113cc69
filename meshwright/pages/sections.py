"""Sections of pages from tables of the command line, and bars of parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label
from meshwright.reports.parts import GROUPS, colour, shade

Parts = Mapping[str, Mapping[str, float]]
"""Seconds of named parts, by bar."""
GROUP_SHADES = {group: colour(group) for group in GROUPS}
"""Colours of the parts of a training step."""


def tables_page(title: str, parts: Parts, tables: Sequence[Table | str]) -> Page:
    """The page of an answer that has no other: its verdict, bars, where it has some, and tables."""
    verdict = [part for part in tables[:1] if isinstance(part, str)]
    chart = [Section("Seconds by part", "", bar_figure(parts))] if parts else []
    return Page(title, {}, [*sections_of(verdict), *chart, *sections_of(tables[len(verdict) :])])


def bar_figure(parts: Parts) -> Figure:
    """Stacked horizontal bars of seconds; names may repeat in no bar."""
    names = list(dict.fromkeys(name for values in parts.values() for name in values))
    shades = {name: shade(name, place) for place, name in enumerate(names)}
    rows = [label(row) for row in parts]
    return stacked_bars(rows, list(parts.values()), shades, xaxis=axis("seconds", rangemode="tozero"))


def stacked_bars(
    rows: Sequence[str],
    parts: Sequence[Mapping[str, float]],
    shades: Mapping[str, str],
    unit: str = "s",
    **shape: Any,
) -> Figure:
    """One stacked horizontal bar a row, from above.

    Args:
        rows: labels of the bars as plotly reads them; they may repeat.
        parts: values of each bar by part; those that it lacks are 0.
        shades: colour of each part, in the order of the stack; parts without a value are left out.
        unit: of the values.
        shape: of the layout, where it is not the usual.
    """
    places = list(range(len(rows)))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label(name),
            "y": places,
            "x": [float(values.get(name, 0.0)) for values in parts],
            "marker": {"color": drawn},
            "customdata": list(rows),
            "hovertemplate": f"%{{customdata}}<br>{label(name)}: %{{x:.4g}} {unit}<extra></extra>",
        }
        for name, drawn in shades.items()
        if any(values.get(name, 0.0) > 0 for values in parts)
    ]
    usual = {
        "barmode": "stack",
        "bargap": 0.25,
        "height": 150 + 30 * len(rows),
        "xaxis": axis("seconds"),
        "yaxis": axis(autorange="reversed", showgrid=False, tickvals=places, ticktext=list(rows)),
    }
    return figure_of(data, **usual | shape)


def sections_of(tables: Sequence[Table | str]) -> list[Section]:
    """Tables and lines of the command line as sections; a line becomes the words of the table before it."""
    sections: list[Section] = []
    for part in tables:
        if isinstance(part, str):
            before = sections.pop() if sections else Section("In short", "")
            words = f"{before.words} {part}".strip()
            sections.append(
                Section(
                    before.heading,
                    words,
                    columns=before.columns,
                    rows=before.rows,
                    words_in=before.words_in,
                )
            )
            continue
        columns = [_plain(column.header) for column in part.columns]
        rows = list(zip(*([_plain(cell) for cell in column.cells] for column in part.columns), strict=True))
        words_in = tuple(index for index, column in enumerate(part.columns) if column.justify == "left")
        heading = _plain(part.title) if part.title else f"{columns[0][:1].upper()}{columns[0][1:]}"
        columns[0] = columns[0] if part.title else ""
        sections.append(Section(heading, "", columns=columns, rows=rows, words_in=words_in))
    return sections


def _plain(cell: Any) -> str:
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)
