"""``meshwright learn``: factors of kernels, links, host and memory from a user's measured steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshwright.commands.output import Json


def learn(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="CSV files of measured steps (columns of validate --cases); logs of Megatron-LM or "
            "torchtitan (.log, .out, .txt) with plan.yaml in their folder."
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the site to this YAML file.")] = None,
    json: Json = False,
) -> None:
    """Learn from measured steps of your own what kernels, links, host and memory of your machines do.

    [bold]plan[/bold], [bold]simulate[/bold] and [bold]whatif[/bold] take the file with [bold]--site[/bold].

    [bold]Example:[/bold] meshwright learn runs.csv -o site.yaml

    [bold]Example:[/bold] meshwright learn trials/trial-1/train.log trials/trial-2/train.log -o site.yaml
    """
    from meshwright.api.learning import learn as learn_from
    from meshwright.commands.output import note, print_json, show_tables

    found = learn_from(runs)
    if json:
        print_json(found.to_dict())
    else:
        show_tables(*found._tables())
    if out is not None:
        found.save(out)
        note(f"wrote {out}; --site {out} takes it")
