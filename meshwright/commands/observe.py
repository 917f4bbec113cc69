"""``meshwright observe``: a short ladder of loads on a live server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshwright.commands.output import Json

LADDER, PROMPT, OUTPUT, REQUESTS, SECONDS = "1,4,16", 512, 128, 200, 120.0


def observe(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="An OpenAI-compatible server, as http://host:8000.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.jsonl", help="Write the results there.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name; default: the server's first.")] = None,
    concurrency: Annotated[str, typer.Option(help="Clients of each level.")] = LADDER,
    isl: Annotated[int, typer.Option(help="Tokens of a prompt, about.")] = PROMPT,
    osl: Annotated[int, typer.Option(help="Tokens of an output.")] = OUTPUT,
    requests: Annotated[int, typer.Option(help="Requests in all, at most.")] = REQUESTS,
    seconds: Annotated[float, typer.Option(help="Seconds after which no request is sent.")] = SECONDS,
    json: Json = False,
) -> None:
    """Send a short ladder of loads to a live server, and write its latencies as `vllm bench serve` does.

    [bold]learn[/bold] takes the file, with the server's scenario as plan.yaml beside it. The key of an API is
    read from OPENAI_API_KEY.

    [bold]Example:[/bold] meshwright observe http://localhost:8000 -o server/results.jsonl
    """
    from core.errors import InputError
    from meshwright.commands.output import note, progress, tell
    from meshwright.observations import live_server

    parts = [part.strip() for part in concurrency.split(",")]
    if not all(part.isdigit() and len(part) < 6 for part in parts):
        raise InputError(f"must be numbers of clients, as 1,4,16, found {concurrency!r}", "--concurrency")
    with progress("levels") as advance:
        observed = live_server.observe(
            url,
            model=model,
            concurrency=[int(part) for part in parts],
            isl=isl,
            osl=osl,
            requests=requests,
            seconds=seconds,
            progress=advance,
        )
    tell(observed, json)
    if out is not None:
        observed.save(out)
        note(f"wrote {out}; `meshwright learn {out} -o site.yaml` takes it with {out.parent / 'plan.yaml'}")
