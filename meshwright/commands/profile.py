"""``meshwright profile``: measurements of this machine, as point files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.commands import INTERRUPTED
from meshwright.commands.output import Json

if TYPE_CHECKING:
    from profiles.importers import ImportResult
    from profiles.measure import ProfileResult


def profile(
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder of point files.")] = Path("points"),
    device: Annotated[
        str, typer.Option(help="torch device: cuda:0, cuda:1, ... (also ROCm), or cpu.")
    ] = "cuda:0",
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="Measure about 300 points, or about 70 (under a minute on a GPU)."
        ),
    ] = False,
    dtypes: Annotated[
        str,
        typer.Option(help="Number formats (fp32,tf32,fp16,bf16,fp8); default: all that the device supports."),
    ] = "",
    operations: Annotated[
        str, typer.Option(help="Operations to measure, separated by commas; default: all.")
    ] = "",
    name: Annotated[
        str, typer.Option(help="Device name in the point files; default: its catalogue name.")
    ] = "",
    storage: Annotated[Path | None, typer.Option(help="Measure the NVMe drive of this folder.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: torch's default.")] = 0,
    collectives: Annotated[
        int, typer.Option(min=0, metavar="N", help="Measure collectives of N processes instead of kernels.")
    ] = 0,
    imported: Annotated[
        Path | None,
        typer.Option(
            "--import", help="Convert files of nccl-tests, aiconfigurator, Vidur or Kineto instead."
        ),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="Format of --import; default: detected.")] = "",
    collective: Annotated[
        str,
        typer.Option(help="Collective of an imported log that does not name it: all_reduce, alltoall, ..."),
    ] = "",
    json: Json = False,
) -> None:
    """Measure kernels of this machine with torch, and write point files.

    An interrupted run resumes; finished points are kept. [bold]--import[/bold] converts measurements of other
    tools.

    [bold]Example:[/bold] meshwright profile --device cpu --quick -o points
    """
    from meshwright.commands.output import note, print_json, show_tables
    from meshwright.reports import points as report

    mode = "full" if full else "quick"
    if imported is not None:
        result: ImportResult | ProfileResult = _import(imported, out, format_, name, collective)
    elif collectives:
        from profiles.measure import profile_collectives

        kind = "cpu" if device == "cpu" else "cuda"
        named = {"operations": _words(operations), "system": name}
        result = profile_collectives(collectives, out, device=kind, mode=mode, **named)
    else:
        from profiles.measure import profile as measure

        result = measure(
            device,
            mode,
            _words(dtypes),
            out,
            name=name,
            operations=_words(operations),
            storage=storage,
            threads=threads,
            notice=note,
        )
    print_json(report.as_json(result)) if json else show_tables(*report.as_tables(result))
    if getattr(result, "interrupted", False):
        raise typer.Exit(INTERRUPTED)


def _import(source: Path, out: Path, form: str, name: str, collective: str) -> ImportResult:
    from core.files import written_together
    from profiles.importers import ImportOptions, import_points

    with written_together():
        return import_points(source, out, form, ImportOptions(name, name, collective))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
