"""``meshwright export``: a plan as files that a launcher reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshwright.commands import options


def export(
    plan: Annotated[
        str, typer.Argument(help="Scenario (YAML file or shipped name), or saved output of `plan --json`.")
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="TARGET",
            help="megatron-lm, -bridge, deepspeed, torchtitan, trl, axolotl, llama-factory, vllm, sglang, "
            "trtllm, dynamo, kserve, llm-d, slurm, k8s, verl, nemo-rl or slime.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")],
    rank: Annotated[
        int | None, typer.Option(min=1, help="Rank of the plan in a saved search (default 1).")
    ] = None,
    allow: options.Allow = None,
) -> None:
    """Write the files that launch a plan: arguments, configurations, job scripts.

    Plan fields that the launcher cannot express are printed on stderr and in the files.

    [bold]Example:[/bold] meshwright export gpt3-175b-1024-a100 --to megatron-lm -o launch
    """
    import shlex

    from meshwright.api import launch as launch_api
    from meshwright.commands.output import note, show_on_stderr

    words = [
        "meshwright",
        "export",
        plan,
        "--to",
        to,
        *(["--rank", str(rank)] if rank else []),
        *(word for rule in allow or () for word in ("--allow", rule)),
        "-o",
        str(out),
    ]
    launch = launch_api.export(plan, to, out, rank=rank, command=shlex.join(words), allow=allow)
    for name in launch.files:
        typer.echo(str(out / name))
    question = launch_api.export_question(plan, rank, allow=allow)
    for rule, why in question.insisted.items():
        note(f"against the rule {rule}, as --allow asks: {why}")
    if launch.framework:
        from meshwright.reports.exported import framework_table

        scenario, exported = question.training()
        show_on_stderr(framework_table(scenario.setting, exported, launch.framework, launch.levers))
    for gap in launch.gaps:
        note(f"not expressed: {gap}")
    for line in launch.notes:
        note(f"yours to add: {line}")
