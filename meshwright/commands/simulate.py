"""``meshwright simulate``: what a scenario asks, by its kind (`meshwright.jobs`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshwright.commands import INTERRUPTED, options
from meshwright.commands.flags import StepFlags, spread
from meshwright.commands.output import Json

WORDS = {"html": "page"}
"""Words of files, where they are not their flag's."""
SHOWN, DRAWN = 100_000, 500_000
"""Maximum number of kernels and collectives run as separate tasks: for figures, for traces and pages."""


@spread
def simulate(
    step: StepFlags,
    engine: Annotated[
        bool, typer.Option("--engine", help="Also run the step, or saves beside it, on the event engine.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write a Perfetto trace (FILE.json.gz), or one file per rank into a folder "
            "(for Holistic Trace Analysis)."
        ),
    ] = None,
    html: options.Html = None,
    requests: Annotated[
        Path | None, typer.Option(help="Serving: write a CSV with one row per request.")
    ] = None,
    replications: options.Replications = None,
    json: Json = False,
) -> None:
    """Predict a training step of a plan, a run of weeks, or the requests of a serving scenario.

    Flags change keys of the scenario, or replace it; [bold]--fix[/bold] sets plan fields. Traces, pages and
    schedules without a closed form need the event engine, and start it.

    [bold]Example:[/bold] meshwright simulate gpt3-175b-1024-a100
    """
    from core.errors import InfeasibleError
    from core.files import written_together
    from meshwright.commands.output import note, note_model, print_json, progress, show_tables
    from meshwright.commands.plan_flags import refuse_given
    from meshwright.jobs import AskOptions, job_of
    from meshwright.questions.training import scenario_data

    question = scenario_data(step.scenario or None, step.arguments(), "command line")
    job = job_of(*question)
    files = {"requests": requests, "trace": trace, "html": html}
    flags: dict[str, object] = {**files, "replications": replications, "engine": engine or None}
    for name, why in job.unread.items():
        refuse_given({f"--{name}": flags[name]}, why)
    drawn = trace is not None or html is not None
    with progress(job.waits) as advance:
        terms = AskOptions(
            engine=engine or drawn,
            detail=DRAWN if drawn else SHOWN,
            replications=replications,
            trace=trace,
            named=step.scenario,
            progress=advance,
            notice=lambda line: note(f"{line}{job.drawn_words if drawn else ''}"),
        )
        done = job.answer(question, terms)
    if (said := job.model(done)) is not None:
        note_model(*said)
    if json:
        print_json(done.to_dict())
    else:
        show_tables(*job.tables(done))
    with written_together():
        for name, path in files.items():
            if path is not None:
                job.files[name](done, path) if name != "html" else done.page().write(path)
    for name, path in files.items():
        if path is not None:
            note(f"{WORDS.get(name, name)} written: {path}")
    if ended := job.interrupted(done):
        note(f"interrupted: {ended}")
        raise typer.Exit(INTERRUPTED)
    if short := job.shortage(done):
        raise InfeasibleError(short)
