"""What the commands do with scenarios that ask about serving."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.commands.output import note, print_json, progress, show_tables

if TYPE_CHECKING:
    from simulator.serving.result import ServingResult

INTERRUPTED = 130


def simulate_serving(
    data: Mapping[str, Any],
    path: Path,
    requests: Path | None,
    trace: Path | None,
    html: Path | None,
    json: bool,
) -> None:
    """Run a serving scenario and write what was asked for.

    Raises:
        InputError: the scenario is wrong, or a file cannot be written.
        InfeasibleError: the model does not fit.
    """
    from meshwright.reports.serving import serving_tables
    from simulator.serving.result import serve
    from simulator.serving.scenario import make_serving

    setting = make_serving(data, str(path), path.parent)
    with progress("requests") as advance:
        result = serve(setting, advance, traced=trace is not None)
    if json:
        print_json(result.to_dict())
    else:
        show_tables(*serving_tables(result))
    _write_files(result, requests, trace, html)
    if result.interrupted:
        import typer

        note(f"interrupted: {len(result.records):,} requests had ended")
        raise typer.Exit(INTERRUPTED)


def _write_files(result: ServingResult, requests: Path | None, trace: Path | None, html: Path | None) -> None:
    if requests is not None:
        import csv
        import io

        from hwmodels.files import write_text
        from meshwright.reports.serving import request_rows

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(request_rows(result))
        write_text(requests, text.getvalue())
        note(f"requests written: {requests}")
    if trace is not None:
        from meshwright.exporters.serving_trace import write_serving_trace

        write_serving_trace(trace, result)
        note(f"trace written: {trace}")
    if html is not None:
        from meshwright.pages.serving import write_serving

        write_serving(html, result)
        note(f"page written: {html}")
