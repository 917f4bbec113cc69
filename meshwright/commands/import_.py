"""``meshwright import``: a launch file or command as a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    source: Annotated[
        str, typer.Argument(metavar="FILE|COMMAND", help="Script, configuration, or command line.")
    ],
    cluster: Annotated[str, typer.Option(help="Cluster that it runs on: name or YAML.")],
    gpus: Annotated[int | None, typer.Option(min=1, help="Devices, where the file does not say.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, where the file does not say.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Words of the tokenizer, likewise.")] = None,
    seq_len: Annotated[int | None, typer.Option(min=1, help="Tokens in a sequence, likewise.")] = None,
    global_batch: Annotated[int | None, typer.Option(min=1, help="Sequences in a step, likewise.")] = None,
    kind: Annotated[
        str, typer.Option("--from", help="megatron-lm, deepspeed or torchtitan; default: recognised.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Scenario file to write; default: stdout.")
    ] = None,
) -> None:
    """Turn a launch file of Megatron-LM, DeepSpeed or torchtitan into a scenario.

    Nothing in the file is executed. Options that no prediction reads are kept as comments of the scenario;
    unknown ones are named on stderr.

    [bold]Example:[/bold] meshwright import "torchrun --nnodes 8 --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b" --cluster dgx-h100
    """  # noqa: E501 - one line to copy
    from hwmodels.files import write_text
    from meshwright import launch_api
    from meshwright.commands.output import note
    from meshwright.exporters.scenario_text import scenario_text

    found = launch_api.import_(
        source,
        cluster=cluster,
        gpus=gpus,
        model=model,
        vocabulary=vocabulary,
        seq_len=seq_len,
        global_batch=global_batch,
        kind=kind,
    )
    text = scenario_text(found, source)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        note(f"scenario written: {out}")
    for line in found.notes:
        note(f"note: {line}")
    if found.unknown:
        note(f"unknown options, kept aside: {' '.join(found.unknown)}")
