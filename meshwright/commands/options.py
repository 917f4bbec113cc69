"""Options common to several commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from planner.execution import Execution as ExecutionOf


def needs_plotly(path: Path | None) -> Path | None:
    """Refuse a page before the work for it begins, if plotly is missing.

    Raises:
        InputError: a page is asked for and plotly is not installed.
    """
    if path is not None:
        from importlib.util import find_spec

        from hwmodels.errors import InputError

        if find_spec("plotly") is None:
            raise InputError("pages need plotly; install it with: pip install '.[pages]'", "--html")
    return path


def _tokens(text: str) -> int:
    """Tokens as people write them: 2048 or 2k."""
    from meshwright.questions import whole_number

    return whole_number(text, "--isl, --osl")


def _names(kind: str) -> Callable[[str], list[str]]:
    """Shell completion from the names of a catalogue of ``show``."""

    def complete(incomplete: str) -> list[str]:
        from meshwright.reports.catalogues import KINDS

        return [name for name in KINDS[kind].names() if name.startswith(incomplete)]

    return complete


Scenario = Annotated[
    str,
    typer.Argument(help="Scenario YAML, or the name of a shipped one.", autocompletion=_names("scenarios")),
]
Model = Annotated[
    str | None,
    typer.Option(help="Name, YAML, or Hugging Face config.json.", autocompletion=_names("models")),
]
Cluster = Annotated[
    str | None,
    typer.Option(help="Name or YAML; several, to compare them: a,b.", autocompletion=_names("clusters")),
]
Gpus = Annotated[str | None, typer.Option(help="Devices of the job; a range 256..2048 compares sizes.")]
SeqLen = Annotated[
    str | None, typer.Option(help="Tokens in a sequence, as 8192 or 8k; default: the model's longest.")
]
GlobalBatch = Annotated[str | None, typer.Option(help="Sequences in an optimizer step.")]
BatchTokens = Annotated[
    str | None, typer.Option(help="Tokens in an optimizer step instead, as 4M (4 x 1024 x 1024).")
]
Precision = Annotated[str | None, typer.Option(help="fp32, tf32, fp16, bf16 (default), fp8, mxfp8 or nvfp4.")]
Framework = Annotated[
    str | None,
    typer.Option(help="Name or YAML; default by device.", autocompletion=_names("frameworks")),
]
OneCluster = Annotated[
    str | None, typer.Option("--cluster", help="Name or YAML.", autocompletion=_names("clusters"))
]
OneSize = Annotated[int | None, typer.Option("--gpus", min=1, help="Devices of the job.")]
Fix = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Hold a plan field, as tensor=8. Repeatable."),
]
Price = Annotated[
    float | None, typer.Option(min=0, help="Dollars an hour and device, instead of the list price.")
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--fix", metavar="FIELD=VALUE", help="A field of the plan, as tensor=8. Repeatable."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key. Repeatable: all in one variation."),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=A,B,C", help="Try several values of a key. Repeatable: a grid."),
]
Replan = Annotated[bool, typer.Option("--replan", help="Search a plan for each of the changes.")]
Limit = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Cap a plan field, as pipeline=16. Repeatable."),
]
Objective = Annotated[
    str | None,
    typer.Option(help="time (default), cost or energy; serving: goodput (default), cost, energy, latency."),
]
Top = Annotated[int | None, typer.Option(help="Plans to show (default 5).")]
Headroom = Annotated[
    str | None,
    typer.Option(help="Memory to leave free, as 10% or 8GiB; default from the memory model's error."),
]
Raw = Annotated[bool, typer.Option("--all", help="Show the raw order, near duplicates included.")]
Refine = Annotated[int, typer.Option(min=0, metavar="N", help="Time the best N with the event engine too.")]
Save = Annotated[
    Path | None,
    typer.Option(metavar="FILE.yaml", help="Write a plan as a scenario that simulate reads."),
]
Rank = Annotated[int, typer.Option(min=1, help="The plan to save.")]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=needs_plotly, help="Write a page with tables and charts."),
]
Csv = Annotated[Path | None, typer.Option(metavar="FILE", help="Write all scored plans.")]
Tokens = Annotated[float | None, typer.Option(help="Tokens to train on: compares sizes by days and dollars.")]
Days = Annotated[float | None, typer.Option(help="Deadline for all tokens.")]
Serve = Annotated[bool, typer.Option("--serve", help="Choose how to serve the model instead.")]
Isl = Annotated[
    int | None,
    typer.Option(parser=_tokens, metavar="N", help="Serving: prompt tokens of a request, as 2048 or 2k."),
]
Osl = Annotated[
    int | None, typer.Option(parser=_tokens, metavar="N", help="Serving: output tokens of a request.")
]
Rate = Annotated[float | None, typer.Option(help="Serving: requests a second.")]
Ttft = Annotated[
    str | None, typer.Option(help="Serving: time to first token, s; p99=2.0 for another share than p90.")
]
Tpot = Annotated[str | None, typer.Option(help="Serving: time per output token, s.")]
Together = Annotated[
    bool, typer.Option("--together", help="Serving: no separate pools for prefill and decode.")
]
Engine = Annotated[str | None, typer.Option(help="Serving: engine preset (show engines).")]
Mix = Annotated[
    str | None,
    typer.Option(
        metavar="TYPES",
        help="Serving: rent the cheapest mix, as l4,a100-sxm-80gb=8,h100-sxm@2.5 (=count, @price).",
    ),
]
Watts = Annotated[float | None, typer.Option(help="Serving: most that the devices of a mix may draw.")]


def question(**flags: str | float | None) -> dict[str, object]:
    """Flags that ask or change a question, by argument of the API; numbers as people write them.

    Raises:
        InputError: a size that cannot be read.
    """
    from meshwright.questions import flag, whole_number

    sizes = ("seq_len", "global_batch", "batch_tokens")
    return {
        name: whole_number(value, flag(name)) if name in sizes and isinstance(value, str) else value
        for name, value in flags.items()
    }


Store = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="SQLite file of finished results; a second run skips those in it."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; default: all cores.")]
Executor = Annotated[str, typer.Option(metavar="NAME", help="Where work runs: local (default) or ray.")]
Address = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Ray cluster; default: one started on this machine.")
]


def execution(executor: str, address: str, workers: int | None, store: Path | None) -> ExecutionOf:
    """Execution of long work, checked before the work starts.

    Raises:
        InputError: an unknown executor, an address without Ray, or a file that is no store.
    """
    from hwmodels.errors import InputError
    from meshwright.commands.output import note
    from planner.execution import Execution

    if address and executor != "ray":
        raise InputError("names a Ray cluster; --executor ray uses it", "--address")
    made = Execution(executor, address, workers, store)
    if others := made.check():
        note(f"note: {store} holds {others:,} results of other versions, which are not used")
    return made


Pareto = Annotated[
    bool,
    typer.Option(
        "--pareto", help="Show fronts: time against memory and energy; serving: user speed, cost, energy."
    ),
]
Day = Annotated[
    str | None,
    typer.Option(
        metavar="RATES", help="Serving: replicas over a day of these rates, in equal parts: 2,5,9,4."
    ),
]
ColdStart = Annotated[
    float,
    typer.Option(min=0, help="Serving over a day: seconds from renting a replica to its first request."),
]
