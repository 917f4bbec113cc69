"""Commands on serving scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.commands import INTERRUPTED
from meshwright.commands.output import note, note_model, print_json, progress, show_tables

if TYPE_CHECKING:
    from planner.execution import Execution
    from simulator.serving.result import ServingResult

REQUESTS_A_SECOND = 20_000
"""Requests that one core simulates in a second, as `benchmarks.serving` prints it, on a busy machine."""
NOTICED_S = 5.0


def simulate_serving(
    data: Mapping[str, Any],
    path: Path,
    requests: Path | None,
    trace: Path | None,
    html: Path | None,
    json: bool,
) -> None:
    """Run a serving scenario and write the requested files.

    Raises:
        InputError: the scenario is wrong, or a file cannot be written.
        InfeasibleError: the model does not fit.
    """
    from core.files import written_together
    from meshwright.reports.serving import serving_tables
    from simulator.serving.result import serve
    from simulator.serving.scenario import make_serving

    setting = make_serving(data, str(path), path.parent)
    if notice := run_notice(setting.serving.requests):
        note(notice)
    note_model(setting.model)
    with progress("requests") as advance:
        result = serve(setting, advance, traced=trace is not None, partial=True)
    if json:
        print_json(result.to_dict())
    else:
        show_tables(*serving_tables(result))
    with written_together():
        _write_files(result, requests, trace, html)
    for kind, written in (("requests", requests), ("trace", trace), ("page", html)):
        if written is not None:
            note(f"{kind} written: {written}")
    if result.interrupted:
        import typer

        note(f"interrupted: {len(result.records):,} requests had ended")
        raise typer.Exit(INTERRUPTED)


def compare_serving(
    data: Mapping[str, Any],
    path: Path,
    execution: Execution,
    html: Path | None,
    json: bool,
    typed: bool = False,
) -> None:
    """Run a serving scenario and its variations; Ctrl-C shows the finished runs.

    Raises:
        InputError: the scenario or a variation is wrong.
        MeshwrightError: the base cannot be run.
    """
    import typer

    from meshwright.variations.question import WhatIfQuestion
    from meshwright.variations.serving import run_serving, serve_runs
    from meshwright.variations.serving_tables import comparison_tables, describe_comparison

    question = WhatIfQuestion.of(dict(data), str(path), path.parent.resolve(), typed)
    with progress("base") as advance:
        outcomes = [run_serving(question.base, advance)]
        if (again := question.replanned_base) is not None:
            outcomes.append(run_serving(again, advance))
    runs = list(question.runs())
    finished: dict[int, Any] = {}
    interrupted = False
    try:
        with progress("variations") as advance:
            for number, outcome in serve_runs(runs, execution):
                finished[number] = outcome
                advance(len(finished) / len(runs))
    except KeyboardInterrupt:
        interrupted = True
    outcomes += [finished[number] for number in sorted(finished)]
    if json:
        print_json(describe_comparison(question.title, outcomes, interrupted))
    else:
        show_tables(*comparison_tables(question.title, outcomes))
    if html is not None and interrupted and (html.exists() or not finished):
        note(f"interrupted: {html} is left as it was")
    elif html is not None:
        from meshwright.pages.serving_variations import write_comparison

        write_comparison(html, question.title, outcomes)
        note(f"page written: {html}")
    if interrupted:
        note(f"interrupted: {len(finished):,} of {len(runs):,} runs finished")
        raise typer.Exit(INTERRUPTED)


def run_notice(requests: int) -> str | None:
    """Notice of a long run."""
    seconds = requests / REQUESTS_A_SECOND
    if seconds < NOTICED_S:
        return None
    return f"{requests:,} requests take about {seconds:,.0f} s; Ctrl-C shows those that have ended"


def _write_files(result: ServingResult, requests: Path | None, trace: Path | None, html: Path | None) -> None:
    if requests is not None:
        import csv
        import io

        from core.files import write_text
        from meshwright.reports.serving import request_rows

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(request_rows(result))
        write_text(requests, text.getvalue())
    if trace is not None:
        from simulator.serving.trace import write_serving_trace

        write_serving_trace(trace, result.fleet)
    if html is not None:
        from meshwright.pages.serving import write_serving

        write_serving(html, result)
