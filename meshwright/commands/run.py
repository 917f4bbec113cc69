"""``meshwright simulate`` of a scenario with ``run``: weeks in place of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshwright.commands import INTERRUPTED


def simulate_run_of(
    scenario: str,
    arguments: dict[str, Any],
    replications: int | None,
    engine: bool,
    trace: Path | None,
    html: Path | None,
    json: bool,
) -> None:
    """Simulate a run, print it, and write the requested files.

    Raises:
        InfeasibleError: the plan does not fit the devices' memory, or no replication finishes.
        InputError: the question cannot be asked, or a file cannot be written.
        Exit: the run was interrupted; finished replications are printed and written.
    """
    import typer

    from core.errors import InfeasibleError
    from core.files import written_together
    from meshwright.api.runs import run
    from meshwright.commands.output import note, print_json, progress, show_tables
    from meshwright.reports.plans import shortage, whole_plan
    from meshwright.reports.runs import run_tables_of

    with progress("the run") as advance:
        done = run(scenario, replications=replications, engine=engine, progress=advance, **arguments)
    if json:
        print_json(done.to_dict())
    else:
        show_tables(*whole_plan(done.planned.prediction, done.title), *run_tables_of(done.planned))
    with written_together():
        if trace is not None:
            from meshwright.run_trace import write_run_trace

            write_run_trace(trace, done.planned)
        if html is not None:
            from meshwright.pages.runs import write_run_page

            write_run_page(html, done.title, done.planned)
    for kind, path in (("trace", trace), ("page", html)):
        if path is not None:
            note(f"{kind} written: {path}")
    if done.planned.outcome.interrupted:
        note(f"interrupted: {len(done.planned.outcome.replications):,} replications were drawn")
        raise typer.Exit(INTERRUPTED)
    if short := shortage(done.planned.prediction):
        raise InfeasibleError(short)
    if not any(each.done for each in done.planned.outcome.replications):
        raise InfeasibleError("no replication of the run finishes: faults outrun its recovery")
