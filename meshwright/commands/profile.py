"""``meshwright profile``: measurements of this machine, as point files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.commands.output import Json

if TYPE_CHECKING:
    from profiles.importers import ImportResult
    from profiles.measure import ProfileResult


def profile(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the point files.")] = Path("points"),
    device: Annotated[str, typer.Option(help="cuda:0, cuda:1, ... (ROCm too), or cpu.")] = "cuda:0",
    full: Annotated[
        bool, typer.Option("--full/--quick", help="About 300 points, or about 70 (under a minute on a GPU).")
    ] = False,
    dtypes: Annotated[str, typer.Option(help="Of fp32,tf32,fp16,bf16,fp8; default: what suits.")] = "",
    operations: Annotated[str, typer.Option(help="Operations to measure, comma apart; default: all.")] = "",
    name: Annotated[str, typer.Option(help="What to call the device; default: its catalogue name.")] = "",
    storage: Annotated[Path | None, typer.Option(help="A folder on the NVMe drive to measure.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="Threads on a CPU; 0: torch's choice.")] = 0,
    collectives: Annotated[
        int, typer.Option(min=0, metavar="N", help="Measure collectives between N processes instead.")
    ] = 0,
    imported: Annotated[
        Path | None,
        typer.Option(
            "--import", help="Read a file or folder of nccl-tests, aiconfigurator, Vidur or Kineto instead."
        ),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="Format of --import; default: recognised.")] = "",
    json: Json = False,
) -> None:
    """Measure kernels with torch, or read others' measurements, and write them as point files.

    An interrupted run resumes; finished points are never lost.

    [bold]Example:[/bold] meshwright profile --device cpu --quick -o points
    """
    from meshwright.commands.output import note, print_json, show_tables
    from meshwright.reports import points as report

    if imported is not None:
        result: ImportResult | ProfileResult = _import(imported, out, format_, name)
    elif collectives:
        from profiles.measure import profile_collectives

        kind = "cpu" if device == "cpu" else "cuda"
        mode = "full" if full else "quick"
        result = profile_collectives(
            collectives, out, device=kind, mode=mode, operations=_words(operations), system=name
        )
    else:
        from profiles.measure import profile as measure

        result = measure(
            device,
            "full" if full else "quick",
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
        raise typer.Exit(130)


def _import(source: Path, out: Path, form: str, name: str) -> ImportResult:
    from hwmodels.files import written_together
    from profiles.importers import Options, import_points

    with written_together():
        return import_points(source, out, form, Options(gpu=name, system=name))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
