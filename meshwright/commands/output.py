"""What commands write: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH_OF_FILES = 190
"""Columns of a table that goes to a file or a pipe."""
WIDE = 160
"""Columns from which a terminal has room for one line a plan."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]


def print_json(report: Mapping[str, Any]) -> None:
    """Print a report as JSON; the same report is the same bytes."""
    typer.echo(json.dumps(report, indent=2, allow_nan=False))


def wide() -> bool:
    """Whether stdout has room for wide tables."""
    return not sys.stdout.isatty() or shutil.get_terminal_size().columns >= WIDE


def show_tables(*parts: RenderableType) -> None:
    """Print tables and text on stdout."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)
    for part in parts:
        console.print(part)


def note(line: str) -> None:
    """Say something that is not a result."""
    typer.echo(line, err=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr, on terminals only; yields the function that moves it (share of the work)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)
