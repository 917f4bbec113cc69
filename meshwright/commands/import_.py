"""``meshwright import``: a launch file or command as a scenario, reports of a machine as a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshwright.commands import options


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|COMMAND",
            help="Script, configuration, command line, or reports of a machine.",
        ),
    ],
    cluster: Annotated[
        str | None,
        typer.Option(help="Cluster: name or YAML file; reports of a machine make one of their own."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs, if not in the file.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, if not in the file.")] = None,
    vocabulary: Annotated[
        int | None, typer.Option(min=1, help="Vocabulary size, if not in the file.")
    ] = None,
    seq_len: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a sequence, if not in the file.")
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, help="Sequences per optimizer step, if not in the file.")
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--from",
            help="Kind of file: megatron-lm, megatron-bridge, deepspeed, torchtitan, vllm, sglang, trtllm, "
            "dynamo, k8s, verl or nemo-rl; default: detected.",
        ),
    ] = "",
    allow: options.Allow = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the scenario to FILE; default: stdout.")
    ] = None,
) -> None:
    """Convert a launch file of training or of a server to a scenario.

    The file is parsed, never executed. Options that no prediction reads become comments of the scenario.
    Unknown options are printed on stderr. Output of nvidia-smi, ibstat, lspci and SLURM, in a file or a folder, becomes
    a cluster file.

    [bold]Example:[/bold] meshwright import "torchrun --nnodes 8 --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b" --cluster dgx-h100
    """  # noqa: E501 - one line to copy
    from core.files import write_text
    from meshwright.api import launch as launch_api
    from meshwright.commands.output import note
    from meshwright.exporters.imports import MACHINE
    from meshwright.exporters.scenario_text import scenario_text

    imported = launch_api.import_(
        source,
        cluster=cluster,
        gpus=gpus,
        model=model,
        vocabulary=vocabulary,
        seq_len=seq_len,
        global_batch=global_batch,
        kind=kind,
        allow=allow,
    )
    text = scenario_text(imported, source, None if out is None else out.parent)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        note(f"{'cluster' if imported.target == MACHINE else 'scenario'} written: {out}")
    for line in imported.notes:
        note(f"note: {line}")
    if imported.unknown:
        note(f"unknown options, kept aside: {' '.join(imported.unknown)}")
