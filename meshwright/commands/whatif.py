"""``meshwright whatif``: named variations of a scenario, and their effects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.commands import INTERRUPTED, options
from meshwright.commands.flags import StepFlags, spread
from meshwright.commands.output import Json

if TYPE_CHECKING:
    from meshwright.variations.answer import Inquiry, Outcome, Remaining
    from planner.execution import Execution


@spread
def whatif(
    step: StepFlags,
    set_: options.Set = None,
    sweep: options.Sweep = None,
    replan: options.Replan = False,
    engine: Annotated[
        bool, typer.Option("--engine", help="Run every variation on the event engine.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Start a run that is estimated to take more than 10 minutes.")
    ] = False,
    executor: options.Executor = "local",
    address: options.Address = "",
    workers: options.Workers = None,
    store: options.Store = None,
    html: options.Html = None,
    json: Json = False,
) -> None:
    """Compare variations of a scenario: change of the step time, and of the parts of the step.

    [bold]--set[/bold] and [bold]--sweep[/bold] replace the variations of the file. Other flags change keys of
    the scenario, or replace it. A variation keeps the plan; with [bold]--replan[/bold] it searches a new one.
    Ctrl-C shows the finished runs.

    [bold]Example:[/bold] meshwright whatif nic-gpt3-175b
    """
    from meshwright.questions.scenarios import serving_data
    from meshwright.questions.training import scenario_data
    from meshwright.variations.flags import variation_of

    scenario, arguments = step.scenario, step.arguments()
    execution = options.execution(executor, address, workers, store)
    arguments |= {"plans": True}
    arguments["variations"] = variation_of(set_ or (), sweep or (), replan) or None
    if scenario and (served := serving_data(scenario)) is not None:
        from meshwright.commands.serving import compare_serving

        data = scenario_data(scenario, arguments, "")[0]
        compare_serving(data, served[1], execution, html=html, json=json, typed=bool(arguments["variations"]))
        return
    data, where, folder = scenario_data(scenario or None, arguments, "command line")
    typed = bool(arguments["variations"])
    compare_training(data, where, folder, execution, engine, yes, html, json, typed)


def compare_training(
    data: dict[str, Any],
    where: str,
    folder: Path,
    execution: Execution,
    engine: bool,
    yes: bool,
    html: Path | None,
    json: bool,
    typed: bool = False,
) -> None:
    """Run a training scenario and its variations; print and draw the changes.

    Raises:
        InputError: a wrong key or value, a long run without confirmation, or the page cannot be written.
        MeshwrightError: the base cannot be run.
    """
    from meshwright.commands.output import note, print_json, show_tables
    from meshwright.variations.answer import Inquiry
    from meshwright.variations.question import WhatIfQuestion
    from meshwright.variations.tables import answer_table, describe_answer

    inquiry = Inquiry(WhatIfQuestion.of(data, where, folder.resolve(), typed), engine, execution)
    if inquiry.open_form and not engine:
        note(f"no closed form for {', '.join(inquiry.open_form)}: every run is timed by the event engine")
    outcomes, work = inquiry.base()
    _ask(work, yes)
    finished, interrupted = _run(inquiry, work)
    outcomes += finished
    title = inquiry.question.title
    if json:
        print_json(describe_answer(title, outcomes, inquiry.engine, interrupted))
    else:
        show_tables(*answer_table(title, outcomes))
    if html is not None and interrupted and (html.exists() or not finished):
        note(f"interrupted: {html} is left as it was")
    elif html is not None:
        from meshwright.pages.variations import write_variations

        write_variations(html, title, outcomes)
        note(f"page written: {html}")
    if interrupted:
        note(f"interrupted: {len(finished):,} of {work.runs:,} runs finished")
        raise typer.Exit(INTERRUPTED)


def _ask(work: Remaining, yes: bool) -> None:
    """Announce a long question, and refuse a very long one without confirmation.

    Raises:
        InputError: it takes long and is not confirmed.
    """
    from core.errors import InputError
    from meshwright.commands.output import note
    from meshwright.variations.answer import LONG_S
    from meshwright.variations.tables import estimate_words

    expected = estimate_words(work.same_plan, work.replanned, work.seconds)
    if work.seconds > LONG_S and not yes:
        raise InputError(f"{expected}; --yes starts it, fewer values make it shorter")
    note(expected)


def _run(inquiry: Inquiry, work: Remaining) -> tuple[list[Outcome], bool]:
    """The outcomes of all variations in the order of the file, or those finished when Ctrl-C came."""
    from meshwright.commands.output import progress

    finished: dict[int, Outcome] = {}
    try:
        with progress("variations") as advance:
            for number, outcome in inquiry.variations(work):
                finished[number] = outcome
                advance(len(finished) / work.runs)
    except KeyboardInterrupt:
        return [finished[number] for number in sorted(finished)], True
    return [finished[number] for number in sorted(finished)], False
