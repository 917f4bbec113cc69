"""Results as a screen of text, and as HTML in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WIDTH, LONGEST = 100, 2400
"""Columns and characters of a result in Python's prompt."""


class Shown:
    """A result that prints as its tables; its class defines ``_tables``, and ``_bars`` for a chart."""

    def _tables(self) -> Sequence[Any]:
        """Tables and lines, as the command line prints them."""
        raise NotImplementedError

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        """Parts of bars by name, for the chart of a notebook; empty without one."""
        return {}

    def _page(self, path: Path) -> None:
        """Write the page of the result; its class defines it.

        Raises:
            InputError: there is none.
        """
        from core.errors import InputError

        raise InputError(f"{type(self).__name__} has no page; --html of its command writes one", "save")

    def html(self) -> str:
        """The page of the result.

        Raises:
            InputError: there is none.
        """
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="meshwright-page-") as folder:
            path = Path(folder) / "page.html"
            self._page(path)
            return path.read_text(encoding="utf-8")

    def save(self, path: str | Path) -> Path:
        """Write the result: a page (.html), what ``--json`` prints (.json), or its scenario (.yaml).

        Returns:
            The path.

        Raises:
            InputError: another suffix, a result without such a file, or a path that cannot be written.
        """
        import json

        import yaml

        from core.errors import InputError
        from core.files import write_text

        path = Path(path)
        scenario, report = getattr(self, "scenario", None), getattr(self, "to_dict", None)
        if path.suffix == ".html":
            self._page(path)
        elif path.suffix == ".json" and callable(report):
            write_text(path, json.dumps(report(), indent=2, allow_nan=False) + "\n")
        elif path.suffix in (".yaml", ".yml") and callable(scenario):
            write_text(path, yaml.safe_dump(scenario(), sort_keys=False))
        else:
            kinds = [".html", *([".json"] if callable(report) else [])]
            kinds += [".yaml"] if callable(scenario) else []
            raise InputError(f"is written as {' or '.join(kinds)}, found {path.name!r}", "save")
        return path

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

    from meshwright.reports.parts import GROUPS

    most = max((sum(values.values()) for values in parts.values()), default=0.0)
    if not most:
        return ""
    rows = ""
    for name, values in parts.items():
        cells = "".join(
            f'<span title="{escape(group)}: {value:.4g} s" style="display:inline-block;height:16px;'
            f'width:{60 * value / most:.2f}%;background:{GROUPS[group][0]}"></span>'
            for group, value in values.items()
        )
        total = f"{sum(values.values()):.4g} s"
        rows += f'<div style="white-space:nowrap"><code>{escape(name)}</code><br>{cells} {total}</div>'
    used = dict.fromkeys(group for values in parts.values() for group in values)
    legend = " ".join(
        f'<span style="color:{GROUPS[group][0]}">&#9632;</span> {escape(group)}' for group in used
    )
    return f'<div style="max-width:900px">{rows}<small>{legend}</small></div>'
