"""``meshwright sweep``: one question over a grid, resumable, on all cores or a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.commands import options
from meshwright.commands.output import Json

if TYPE_CHECKING:
    from meshwright.sweeps.run import Progress


def sweep(
    file: Annotated[
        str, typer.Argument(help="Sweep: YAML file with scenario, grid and ask, or shipped name.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the table to FILE.csv or FILE.parquet.")
    ] = None,
    store: options.Store = None,
    workers: options.Workers = None,
    executor: options.Executor = "local",
    address: options.Address = "",
    html: options.Html = None,
    json: Json = False,
) -> None:
    """Plan or simulate every point of a grid: models x clusters x GPU counts x loads.

    [bold]--store[/bold] writes every finished result at once; Ctrl-C and crashes lose none.

    [bold]Example:[/bold] meshwright sweep sizes-llama3-8b --store results.db
    """
    from meshwright.commands.output import note, print_json, show_tables, write_page
    from meshwright.sweeps import api as sweep_api
    from meshwright.sweeps.tables import check_format

    if out is not None:
        check_format(out)
    execution = options.execution(executor, address, workers, store)
    with shown_progress() as advance:
        answers = sweep_api.sweep(file, execution=execution, progress=advance)
    if out is not None:
        answers.write(out)
        note(f"table written: {out}")
    write_page(answers, html)
    if json:
        print_json(answers.to_dict())
    elif out is None:
        show_tables(*answers._tables())
    if failed := sum("problem" in row for row in answers.points):
        note(f"{failed:,} of {len(answers.points):,} points have no answer; the column problem says why")


class shown_progress:
    """Progress and time left, on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

    EVERY_S = 10.0
    PACED = 8
    """Points after the first, from which the time left is estimated."""

    def __enter__(self) -> shown_progress:
        from time import monotonic

        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("points"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.live = console.is_terminal
        self.bar = Progress(*columns, console=console, transient=True, disable=not self.live)
        self.bar.start()
        self.task = self.bar.add_task("points", total=None)
        self.clock, self.told, self.first = monotonic, monotonic(), None
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, state: Progress) -> None:
        """Show the progress of the sweep."""
        from meshwright.commands.output import note
        from meshwright.reports.units import seconds

        if self.live:
            self.bar.update(self.task, total=state.points, completed=state.done)
            return
        now, new = self.clock(), state.done - state.stored
        if new and self.first is None:
            self.first = now, new
        if now - self.told < self.EVERY_S or self.first is None:
            return
        self.told = now
        # The start of the workers is no part of the pace.
        began, before = self.first
        pace = (now - began) / (new - before) if new - before >= self.PACED else None
        left = f", {seconds(pace * (state.points - state.done))} left" if pace is not None else ""
        note(f"{state.done:,} of {state.points:,} points{left}")
