"""``meshwright validate``: predicted against measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.commands import options
from meshwright.commands.flags import spread
from meshwright.commands.output import Json

if TYPE_CHECKING:
    from meshwright.validation.loop import Asked
    from planner.execution import Execution


@dataclass(frozen=True)
class ValidateFlags:
    """Flags of ``validate``."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Scenarios with `measured:` and `citation:`; none: the shipped runs."),
    ] = None
    cases: Annotated[
        list[Path] | None,
        typer.Option(help="CSV of measured training runs (repeatable); default: the shipped runs."),
    ] = None
    kept_apart: Annotated[
        list[Path] | None,
        typer.Option(help="CSV of training runs of which a third is kept apart (repeatable): print parts."),
    ] = None
    leave_out: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="With runs: errors without the constants chosen on a source; `source`: each in turn.",
        ),
    ] = None
    kernels: Annotated[
        Path | None,
        typer.Option(help="Folder of point files: validate kernels and collectives instead of steps."),
    ] = None
    serving: Annotated[
        list[Path] | None,
        typer.Option(help="CSV of measured serving runs, a folder of CSVs, or `shipped` (repeatable)."),
    ] = None
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="With --serving: write the rows' scenarios for `simulate`, predict nothing."
        ),
    ] = None
    cluster: Annotated[
        str,
        typer.Option(help="With --kernels: cluster of the measured collectives (name or YAML file)."),
    ] = ""
    live: Annotated[
        bool, typer.Option("--live", help="Train a small GPT on this machine, and predict its steps.")
    ] = False
    device: Annotated[str, typer.Option(help="With --live: torch device (cpu, cuda:0).")] = "cuda:0"
    devices: Annotated[int, typer.Option(min=1, help="With --live: processes, one per GPU.")] = 1
    parallelism: Annotated[
        str, typer.Option(help="With --live and several devices: ddp, fsdp or pipeline.")
    ] = "ddp"
    size: Annotated[str, typer.Option(help="With --live: model size: small, medium, large or all.")] = "small"
    steps: Annotated[int, typer.Option(min=1, help="With --live: timed steps.")] = 10
    points: Annotated[Path, typer.Option(help="With --live: folder of point files; measured if empty.")] = (
        Path("points")
    )
    calibration: Annotated[
        str, typer.Option(help="With --live: calibrated device (name or YAML file) instead of points.")
    ] = ""
    summary: Annotated[bool, typer.Option("--summary", help="Print summaries only.")] = False
    executor: options.Executor = "local"
    address: options.Address = ""
    workers: options.Workers = None
    store: options.Store = None
    max_median: Annotated[
        float | None,
        typer.Option(min=0, help="Exit with 1 if the median error exceeds this share (0.1)."),
    ] = None
    json: Json = False


@spread
def validate(flags: ValidateFlags) -> None:
    """Predict measured runs from their configurations, and report the errors.

    [bold]Example:[/bold] meshwright validate --summary
    """
    _check(flags)
    if flags.files:
        median = _measured(flags.files, flags.summary, flags.json)
        if flags.max_median is not None and median > flags.max_median:
            raise typer.Exit(1)
        return
    if flags.kernels is not None:
        _kernels(flags.kernels, flags.cluster, flags.json)
        return
    if flags.live:
        from meshwright.validation.loop import Asked

        question = flags.device, flags.devices, flags.parallelism, flags.size, flags.steps, flags.points
        _live(Asked(*question, flags.calibration), flags.json)
        return
    execution = options.execution(flags.executor, flags.address, flags.workers, flags.store)
    if flags.write is not None:
        from meshwright.commands.output import note

        count = _reader("serving.ledger", "--serving").write_scenarios(flags.serving or [], flags.write)
        note(f"{count} scenarios in {flags.write}")
        return
    if flags.serving:
        _serving(flags.serving, execution, flags.summary, flags.json)
        return
    question = _Training(flags.cases, flags.kept_apart or [], flags.leave_out, flags.summary, flags.json)
    median = _training(question, execution)
    if flags.max_median is not None and (median is None or median > flags.max_median):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Training:
    """Runs to validate, and what is printed of them."""

    cases: list[Path] | None
    apart: list[Path]
    left_out: str | None
    summary: bool
    json: bool


def _check(flags: ValidateFlags) -> None:
    """Refuse flags of two questions, or of another one.

    Raises:
        InputError: such flags are given.
    """
    from core.errors import InputError

    kernels = flags.kernels is not None
    others = flags.cases or flags.kept_apart or kernels or flags.serving or flags.live or flags.leave_out
    if flags.files and (others or flags.store or flags.workers or flags.address or flags.executor != "local"):
        raise InputError("measured scenarios go with --summary, --max-median and --json alone")
    if sum((bool(flags.cases or flags.kept_apart), kernels, bool(flags.serving), flags.live)) > 1:
        raise InputError("--cases, --kernels, --serving and --live are four questions; ask one at a time")
    if flags.leave_out is not None and (kernels or flags.serving or flags.live):
        raise InputError("--leave-out judges training runs: it goes with --cases or the shipped ones")
    if flags.max_median is not None and (kernels or flags.serving or flags.live):
        raise InputError("--max-median judges whole runs: it goes with --cases or the shipped ones")
    if flags.cluster and not kernels:
        raise InputError("--cluster says what the collectives of --kernels were measured on")
    placed = flags.store or flags.workers or flags.address or flags.executor != "local"
    if (kernels or flags.live) and placed:
        raise InputError("--executor, --address, --workers and --store go with --cases and --serving")
    if flags.write is not None and not flags.serving:
        raise InputError("--write writes the scenarios of measured serving runs: it goes with --serving")


def _training(question: _Training, execution: Execution) -> float | None:
    """Print predicted and measured steps, in parts if some are kept apart; returns the median error."""
    from meshwright.commands.output import print_json, progress, show_tables
    from meshwright.reports.ledger import as_json, as_tables
    from meshwright.validation.ledger import evaluate
    from meshwright.validation.rows import published_files

    apart = question.apart
    files = question.cases or ([] if apart else published_files())
    with progress("predicting cases") as advance:
        ledger = evaluate([*files, *apart], advance, execution)
    extra: dict[str, Any] = {}
    tables: list[Any] = []
    if apart:
        parts = _reader("training.part_tables", "--kept-apart")
        parted = _reader("training.parts", "--kept-apart").divided(ledger, files, apart)
        ledger, extra, tables = parted.open_ledger(), parts.as_json(parted), parts.as_tables(parted)
    if question.left_out is not None:
        left_out = _reader("training.left_out_tables", "--leave-out")
        left = _reader("training.leave_out", "--leave-out").leave_out(ledger, question.left_out, execution)
        extra, tables = extra | left_out.as_json(left), [*tables, *left_out.as_tables(left)]
    if question.json:
        print_json(as_json(ledger) | extra)
    else:
        has_tables = not (tables and question.summary)
        shipped = not (question.cases or apart)
        of_all = as_tables(ledger, not question.summary, shipped) if has_tables else []
        show_tables(*of_all, *tables)
    return ledger.summary.median_abs_error


def _measured(files: list[Path], summary: bool, json: bool) -> float:
    """Print predicted and measured figures of scenarios; returns the median error."""
    from statistics import median

    from meshwright.commands.output import print_json, progress, show_tables
    from meshwright.jobs.measured import compared
    from meshwright.reports.measured import as_json, as_tables

    with progress("predicting scenarios") as advance:
        figures = compared(files, advance)
    print_json(as_json(figures)) if json else show_tables(*as_tables(figures, each=not summary))
    return median(abs(figure.relative_error) for figure in figures)


def _reader(module: str, option: str) -> ModuleType:
    from meshwright.validation.readers import reader

    return reader(module, f"rows of {option}")


def _kernels(folder: Path, cluster: str, json: bool) -> None:
    from hwmodels.cluster import clusters
    from meshwright.commands.output import print_json, show_tables
    from meshwright.reports.kernels import as_json, as_tables
    from profiles.kernel_validation import validate_kernels

    comparison = validate_kernels(folder, clusters.get(cluster, "--cluster") if cluster else None)
    print_json(as_json(comparison)) if json else show_tables(*as_tables(comparison))


def _serving(paths: list[Path], execution: Execution, summary: bool, json: bool) -> None:
    from meshwright.commands.output import print_json, progress, show_tables

    tables = _reader("serving.tables", "--serving")
    with progress("predicting serving runs") as advance:
        ledger = _reader("serving.ledger", "--serving").evaluate(paths, advance, execution)
    print_json(tables.as_json(ledger)) if json else show_tables(*tables.as_tables(ledger, each=not summary))


def _live(question: Asked, json: bool) -> None:
    from meshwright.commands.output import note, print_json, show_tables
    from meshwright.reports.live import as_json, as_tables
    from meshwright.validation.loop import live_loops

    loops = list(live_loops(question, note))
    print_json(as_json(loops)) if json else show_tables(*as_tables(loops))
