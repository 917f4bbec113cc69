"""``meshwright simulate``: the step of a given plan, or the latencies of a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.commands import options
from meshwright.commands.flags import StepFlags, spread
from meshwright.commands.output import Json

if TYPE_CHECKING:
    from meshwright.api.training import MixedSimulation
    from simulator.engine import Timeline

TRACES = (".json", ".json.gz")
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
    replications: Annotated[
        int | None, typer.Option(help="Runs of weeks: times that the run is drawn.", min=1, max=100_000)
    ] = None,
    json: Json = False,
) -> None:
    """Predict a training step of a plan, a run of weeks, or the requests of a serving scenario.

    Flags change keys of the scenario, or replace it; [bold]--fix[/bold] sets plan fields. Traces, pages and
    schedules without a closed form need the event engine, and start it.

    [bold]Example:[/bold] meshwright simulate gpt3-175b-1024-a100
    """
    from meshwright.commands.serving_plan import refuse_given
    from meshwright.questions.scenarios import asks_post_training, has_run, serving_data

    scenario, arguments = step.scenario, step.arguments()
    if scenario and (served := serving_data(scenario)) is not None:
        from meshwright.commands.serving import simulate_serving
        from meshwright.questions.training import scenario_data

        data, *_ = scenario_data(scenario, arguments, "command line")
        simulate_serving(data, served[1], requests=requests, trace=trace, html=html, json=json)
        return
    if asks_post_training(scenario):
        from meshwright.questions.training import flag

        files = {"--requests": requests, "--trace": trace, "--html": html, "--engine": engine or None}
        refuse_given({**files, "--replications": replications}, "a step of post-training has none yet")
        refuse_given(
            {flag(name): value or None for name, value in arguments.items()}, "state it in the scenario"
        )
        simulate_post_training(scenario, json)
        return
    refuse_given({"--requests": requests}, "a training step has no requests")
    if has_run(scenario):
        from meshwright.commands.run import simulate_run_of

        simulate_run_of(scenario, arguments, replications, engine, trace, html, json)
        return
    refuse_given({"--replications": replications}, "only a scenario with run is drawn several times")
    simulate_training(scenario, arguments, engine, trace, html, json)


def simulate_post_training(scenario: str, json: bool) -> None:
    """Predict a step of post-training and print it.

    Raises:
        InputError: the scenario is wrong.
        InfeasibleError: the rollout engine does not fit.
    """
    from meshwright.api.post_training import post_train
    from meshwright.commands.output import print_json, show_tables
    from meshwright.reports.post_training import rl_tables

    done = post_train(scenario)
    if json:
        print_json(done.to_dict())
    else:
        show_tables(*rl_tables(done.step))


def simulate_training(
    scenario: str,
    arguments: dict[str, Any],
    engine: bool,
    trace: Path | None,
    html: Path | None,
    json: bool,
) -> None:
    """Predict a step, print it, and write the requested files.

    Raises:
        InfeasibleError: the plan does not fit the devices' memory.
        InputError: the question cannot be asked, or a file cannot be written.
    """
    from core.errors import InfeasibleError
    from core.files import written_together
    from meshwright.api import training as api
    from meshwright.commands.output import note, note_model, print_json, progress, show_tables
    from meshwright.reports.plans import shortage, whole_plan
    from meshwright.reports.timeline import run_tables

    mixed = api.simulate_mixed(scenario or None, arguments, engine=engine or trace is not None)
    if mixed is not None:
        _show_mixed(mixed, trace, html, json)
        return
    into_folder = trace is not None and _is_folder(trace)
    drawn = trace is not None or html is not None
    with progress("the step") as advance:
        done = api.simulate(
            scenario or None,
            **arguments,
            engine=engine or drawn,
            detail=DRAWN if drawn else SHOWN,
            progress=advance,
            notice=lambda line: note(
                f"{line}; its page and trace take several times as long" if drawn else line
            ),
        )
    prediction, timeline = done.simulation.prediction, done.simulation.timeline
    note_model(prediction.setting.model, prediction.setting.training.seq_len)
    analytic, title = done.simulation.analytic_step_s, done.title
    if json:
        print_json(done.to_dict())
    else:
        engine_tables = run_tables(timeline, analytic, done.traffic) if timeline is not None else []
        show_tables(*whole_plan(prediction, title), *engine_tables)
    with written_together():
        if timeline is not None and trace is not None:
            _write_traces(timeline, trace, into_folder)
        if timeline is not None and html is not None:
            from meshwright.pages.step import write_step

            write_step(html, title, prediction, timeline, analytic)
    for kind, path in (("trace", trace), ("page", html)):
        if path is not None:
            note(f"{kind} written: {path}")
    if short := shortage(prediction):
        raise InfeasibleError(short)


def _show_mixed(mixed: MixedSimulation, trace: Path | None, html: Path | None, json: bool) -> None:
    """Print a step on a cluster of groups.

    Raises:
        InfeasibleError: it does not fit the memory of a group.
        InputError: a page was asked for, or the trace cannot be written.
    """
    from core.errors import InfeasibleError, InputError
    from meshwright.commands.output import note, print_json, show_tables
    from meshwright.reports.mixed import mixed_tables, shortage

    if html is not None:
        raise InputError("pages show clusters of one kind of node only", "--html")
    report = mixed.to_dict()
    if json:
        print_json(report)
    else:
        show_tables(*mixed_tables(report))
    if trace is not None and mixed.engine is not None and mixed.engine.timeline is not None:
        _write_traces(mixed.engine.timeline, trace, _is_folder(trace))
        note(f"trace written: {trace}")
    if short := shortage(report):
        raise InfeasibleError(short)


def _is_folder(path: Path) -> bool:
    """Whether traces go into a folder: an existing folder, or a name without an extension.

    Raises:
        InputError: neither a folder nor a trace file.
    """
    from core.errors import InputError

    if path.is_dir() or (not path.exists() and not path.suffix and path.name):
        return True
    if path.exists() or path.name.endswith(TRACES):
        return False
    raise InputError(f"a trace is a folder or FILE.json.gz or FILE.json, found {str(path)!r}", "--trace")


def _write_traces(timeline: Timeline, path: Path, into_folder: bool) -> None:
    """Write one file, or a folder with one file per rank.

    Raises:
        InputError: a file cannot be written.
    """
    from simulator.engine.trace import write_trace

    if not into_folder:
        write_trace(timeline, path)
        return
    for rank in range(timeline.ranks):
        write_trace(timeline, path / f"rank-{rank}.json.gz", ranks=[rank])
