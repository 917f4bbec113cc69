"""Tables in one style."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.markup import escape
from rich.table import Table


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", left: int = 1) -> Table:
    """A table whose first ``left`` columns are text and whose others are numbers.

    Cells are shown as they are: markup in a user's name stays text.
    """
    made = Table(
        title=escape(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for index, column in enumerate(columns):
        made.add_column(escape(column), justify="left" if index < left else "right", no_wrap=index == 0)
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    return made


def facts(values: Mapping[str, str], title: str = "") -> Table:
    """Names and values, one a line."""
    made = Table(title=escape(title) if title else None, title_justify="left", box=None, show_header=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column()
    for name, value in values.items():
        made.add_row(escape(name), escape(value))
    return made
