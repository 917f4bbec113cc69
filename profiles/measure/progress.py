"""The progress bar of a run, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int, visible: bool) -> Iterator[Callable[[str], None]]:
    """A progress bar; yields the function that names the next point."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not visible) as bar:
        task = bar.add_task("", total=total)
        started = False

        def advance(description: str) -> None:
            nonlocal started
            bar.update(task, advance=1 if started else 0, description=description[:100])
            started = True

        yield advance
