"""``meshwright whatif``: named variations of a scenario, and their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.commands import INTERRUPTED, options
from meshwright.commands.flags import StepFlags, spread
from meshwright.commands.output import Json

if TYPE_CHECKING:
    from meshwright.jobs import Inquirer
    from meshwright.variations.answer import Outcome, Remaining


@spread
def whatif(
    step: StepFlags,
    set_: options.Set = None,
    sweep: options.Sweep = None,
    replan: options.Replan = False,
    engine: Annotated[
        bool, typer.Option("--engine", help="Run every variation on the event engine.")
    ] = False,
    replications: options.Replications = None,
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
    from meshwright.commands.output import note, progress, tell, write_page
    from meshwright.commands.plan_flags import refuse_given
    from meshwright.jobs import AskOptions, job_of
    from meshwright.questions.training import scenario_data
    from meshwright.variations.flags import variations_of

    arguments: dict[str, Any] = {**step.arguments(), "plans": True}
    execution = options.execution(executor, address, workers, store)
    arguments["variations"] = variations_of(set_ or (), sweep or (), replan) or None
    data, where, folder = scenario_data(step.scenario or None, arguments, "command line")
    question = data, where, folder.resolve()
    terms = AskOptions(engine=engine, replications=replications, typed=bool(arguments["variations"]))
    job = job_of(*question)
    if not job.over_seeds:
        refuse_given({"--replications": replications}, "only comparisons of deployments run over seeds")
    inquiry = job.inquiry(question, terms, execution)
    for line in inquiry.notes:
        note(line)
    with progress("base") as advance:
        outcomes, work = inquiry.base(advance)
    _ask(work, yes)
    finished, interrupted = _run(inquiry, work)
    outcomes += finished
    compared = inquiry.comparison(outcomes, interrupted)
    tell(compared, json)
    if html is not None and interrupted and (html.exists() or not finished):
        note(f"interrupted: {html} is left as it was")
    else:
        write_page(compared, html)
    if interrupted:
        note(f"interrupted: {len(finished):,} of {work.runs:,} runs finished")
        raise typer.Exit(INTERRUPTED)
    # Infeasible, as a plan that does not fit: nothing answers the question.
    if finished and all(outcome.report is None for outcome in finished):
        raise typer.Exit(1)


def _ask(work: Remaining, yes: bool) -> None:
    """Announce a long question, and refuse a very long one without confirmation; 0 s: nobody knows.

    Raises:
        InputError: it takes long and is not confirmed.
    """
    from core.errors import InputError
    from meshwright.commands.output import note
    from meshwright.variations.answer import LONG_S
    from meshwright.variations.tables import estimate_words

    if not work.seconds:
        return
    expected = estimate_words(work.same_plan, work.replanned, work.seconds)
    if work.seconds > LONG_S and not yes:
        raise InputError(f"{expected}; --yes starts it, fewer values make it shorter")
    note(expected)


def _run(inquiry: Inquirer, work: Remaining) -> tuple[list[Outcome], bool]:
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
