"""``meshwright learn``: factors of a site from measured steps, or from measured servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshwright.commands.options import Html
from meshwright.commands.output import Json


def learn(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="CSV files of measured steps (columns of validate --cases) or servers (closed loops); "
            "logs of Megatron-LM or torchtitan (.log, .out, .txt), results of vllm bench serve, SGLang, "
            "AIPerf or guidellm (.json, .jsonl) with plan.yaml in their folder."
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the site to this YAML file.")] = None,
    site: Annotated[
        str | None,
        typer.Option(metavar="FILE.yaml", help="Keep the other half of this site: steps or servers."),
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Learn from measured steps or servers of your own what kernels, links, host and engine do there.

    [bold]plan[/bold], [bold]simulate[/bold] and [bold]whatif[/bold] take the file with [bold]--site[/bold].

    [bold]Example:[/bold] meshwright learn runs.csv -o site.yaml

    [bold]Example:[/bold] meshwright learn trials/trial-1/train.log trials/trial-2/train.log -o site.yaml

    [bold]Example:[/bold] meshwright learn server/results.jsonl -o site.yaml
    """
    from meshwright.api.learning import learn as learn_from
    from meshwright.commands.output import note, tell, write_page

    learning = learn_from(runs, site=site)
    tell(learning, json)
    write_page(learning, html)
    if out is not None:
        learning.save(out)
        note(f"wrote {out}; --site {out} takes it")
