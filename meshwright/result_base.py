"""Results as a screen of text, a page, a picture, files and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from core.errors import InputError

if TYPE_CHECKING:
    from meshwright.pages.page import Page
    from meshwright.pages.picture import ChartPicture

WIDTH, LONGEST = 100, 2400
"""Columns and characters of a result in Python's prompt."""
PICTURES, PICTURE_DPI = (".png", ".svg", ".pdf"), 200


class Result:
    """A result that prints as its tables, and is a page, a picture, a file and columns.

    A class defines ``_tables`` and ``to_dict``, and what differs from the defaults: ``page``, ``_rows`` of
    its columns, ``_bars`` of its chart.
    """

    def _tables(self) -> Sequence[Any]:
        """Tables and lines, as the command line prints them."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        raise NotImplementedError

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        """Seconds of parts of bars by name, for charts; empty without bars."""
        return {}

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """Rows of `columns`; by default the figures of ``to_dict`` in one."""
        from meshwright.reports.flat import flat

        return [flat(self.to_dict())]

    def _figure(self) -> dict[str, Any] | None:
        """The chart of `plot`: the bars, else the first of the page; None without one."""
        from meshwright.pages.sections import bar_figure

        parts = self._bars()
        return bar_figure(parts) if parts else self.page().figure

    def page(self) -> Page:
        """The page of the result; by default its bars and tables."""
        from meshwright.pages.sections import tables_page

        return tables_page(getattr(self, "title", "") or "An answer", self._bars(), self._tables())

    def columns(self) -> dict[str, list[Any]]:
        """One list per figure, all of one length, as data frames take; None where a row lacks it."""
        from meshwright.reports.flat import columns

        return columns(self._rows())

    def html(self) -> str:
        """The page as text.

        Raises:
            InfeasibleError: a search that found nothing has no page.
        """
        return self.page().text()

    def plot(self) -> ChartPicture:
        """The main chart as a figure of matplotlib, which notebooks show and ``savefig`` writes.

        Raises:
            InputError: matplotlib is not installed, or nothing can be drawn.
            InfeasibleError: a search that found nothing has no chart.
        """
        from core.errors import InputError

        try:
            from meshwright.pages.picture import picture
        except ImportError:
            raise InputError("needs matplotlib: pip install '.[plot]'", "plot") from None
        figure = self._figure()
        if figure is None:
            raise InputError(f"{type(self).__name__} has no chart; columns() has its figures", "plot")
        return picture(figure)

    def save(self, path: str | Path) -> Path:
        """Write the result, by the suffix of the path.

        A page (.html), a picture (.png, .svg, .pdf), what ``--json`` prints (.json), the columns (.csv), or
        the scenario of a search's first plan (.yaml).

        Returns:
            The path.

        Raises:
            InputError: another suffix, a result without such a file, or a path that cannot be written.
        """
        from core.errors import InputError
        from core.files import atomic_write

        path = Path(path)
        kinds = [".html", *PICTURES, ".json", ".csv", *([".yaml"] if self._first() is not None else [])]
        if path.suffix not in kinds:
            raise InputError(f"is written as {', '.join(kinds)}, found {path.name!r}", "save")
        if path.suffix == ".html":
            self.page().write(path)
        elif path.suffix in PICTURES:
            drawn = self.plot()
            with atomic_write(path) as temporary:
                drawn.savefig(temporary, format=path.suffix[1:], bbox_inches="tight", dpi=PICTURE_DPI)
        else:
            self._save_text(path)
        return path

    def _first(self) -> Callable[[], Mapping[str, Any]] | None:
        """The scenario of the first plan, of results that can be asked for one."""
        scenario = getattr(self, "scenario", None)
        return cast("Callable[[], Mapping[str, Any]]", scenario) if callable(scenario) else None

    def _save_text(self, path: Path) -> None:
        import csv
        import io
        import json

        from core.files import write_text
        from core.yaml_text import yaml_text

        first = self._first()
        if path.suffix == ".json":
            text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        elif path.suffix == ".yaml" and first is not None:
            text = yaml_text(first())
        else:
            columns, file = self.columns(), io.StringIO()
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(columns)
            rows.writerows(zip(*columns.values(), strict=True))
            text = file.getvalue()
        write_text(path, text)

    def __repr__(self) -> str:
        """The tables, cut to a screen."""
        return screen(self._tables())

    def _repr_html_(self) -> str:
        """The tables and the main chart, for notebooks."""
        from html import escape

        text = escape(rendered(self._tables()))
        return (
            f'<pre style="line-height:1.3;white-space:pre;overflow-x:auto">{text}</pre>{bars(self._bars())}'
        )


def rendered(parts: Sequence[Any]) -> str:
    """Tables and lines as text."""
    from io import StringIO

    from rich.console import Console

    # In a notebook, rich would show the text at once instead of writing it.
    plain = {"highlight": False, "emoji": False, "color_system": None, "force_jupyter": False}
    console = Console(file=StringIO(), width=WIDTH, **plain)
    for part in parts:
        console.print(part)
    lines = (line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]
    return "\n".join(lines).strip("\n")


def screen(parts: Sequence[Any]) -> str:
    """Tables and lines, cut after a line where they are longer than a screen."""
    text = rendered(parts)
    if len(text) <= LONGEST:
        return text
    end = " ... (to_dict() has everything)"
    return text[: LONGEST - len(end)].rpartition("\n")[0] + "\n" + end.strip()


def bars(parts: Mapping[str, Mapping[str, float]]) -> str:
    """Stacked bars as HTML: no script, in any notebook."""
    from html import escape

    from meshwright.reports.parts import shade

    longest = max((sum(values.values()) for values in parts.values()), default=0.0)
    if not longest:
        return ""
    used = dict.fromkeys(group for values in parts.values() for group in values)
    colours = {group: shade(group, place) for place, group in enumerate(used)}
    rows = ""
    for name, values in parts.items():
        cells = "".join(
            f'<span title="{escape(group)}: {value:.4g} s" style="display:inline-block;height:16px;'
            f'width:{60 * value / longest:.2f}%;background:{colours[group]}"></span>'
            for group, value in values.items()
        )
        total = f"{sum(values.values()):.4g} s"
        rows += f'<div style="white-space:nowrap"><code>{escape(name)}</code><br>{cells} {total}</div>'
    legend = " ".join(
        f'<span style="color:{colour}">&#9632;</span> {escape(group)}' for group, colour in colours.items()
    )
    return f'<div style="max-width:900px">{rows}<small>{legend}</small></div>'


AnswerT = TypeVar("AnswerT", bound=Result)


def as_answer(kind: type[AnswerT], planned: Any, **more: Any) -> AnswerT:
    """A result of the planner as an answer: a record with the same fields, and ``more``."""
    return kind(**{each.name: getattr(planned, each.name) for each in fields(planned)}, **more)


def check_rank(index: int, plans: int) -> None:
    """Refuse a plan, counted from 0, beyond those that are shown.

    Raises:
        InputError: there is no such plan.
    """
    if not 0 <= index < plans:
        raise InputError(f"{plans} plans are shown, found {index + 1}; a higher top shows more", "rank")
