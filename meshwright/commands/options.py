"""Options common to several commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from planner.execution import Execution as ExecutionOf


def _tokens(text: str) -> int:
    """Tokens as people write them: 2048 or 2k."""
    from meshwright.questions.numbers import whole_number

    return whole_number(text, "--isl, --osl")


def _number(text: str) -> float:
    """Training tokens as people write them: 15e12 or 15T."""
    from meshwright.questions.numbers import number

    return number(text, "--tokens")


def _dollars(text: str) -> float:
    """Dollars as people write them: 2e6, 2M or $2M."""
    from core.errors import InputError, shown
    from meshwright.questions.numbers import number

    try:
        return number(text.strip().strip("$"), "--budget")
    except InputError:
        raise InputError(f"must be dollars, as 5000, 2M or $2M; found {shown(text)}", "--budget") from None


def _names(kind: str) -> Callable[[str], list[str]]:
    """Shell completion from the names of a catalogue of ``show``."""

    def complete(incomplete: str) -> list[str]:
        from meshwright.reports.catalogues import KINDS

        return [name for name in KINDS[kind].names() if name.startswith(incomplete)]

    return complete


Scenario = Annotated[
    str,
    typer.Argument(help="Scenario: YAML file or shipped name.", autocompletion=_names("scenarios")),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Model: name, YAML file, or Hugging Face config.json.", autocompletion=_names("models")
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Cluster: name or YAML file; a,b compares clusters; serving: GPU types (a=8,b=16@1.2).",
        autocompletion=_names("clusters"),
    ),
]
Gpus = Annotated[str | None, typer.Option(help="GPUs of the job; 256..2048 compares sizes.")]
SeqLen = Annotated[
    str | None, typer.Option(help="Tokens of a sequence (8192, 8k); default: the model's maximum.")
]
SourceLen = Annotated[
    str | None,
    typer.Option(help="Tokens that an encoder reads (T5, BART); --seq-len: the decoder's, as many."),
]
GlobalBatch = Annotated[str | None, typer.Option(help="Sequences per optimizer step.")]
BatchTokens = Annotated[
    str | None,
    typer.Option(help="Tokens per optimizer step (4M is 4 x 1024 x 1024), instead of --global-batch."),
]
Precision = Annotated[
    str | None, typer.Option(help="Number format: fp32, tf32, fp16, bf16 (default), fp8, mxfp8 or nvfp4.")
]
Adapter = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        "--lora",
        metavar="RANK[:FORMAT]",
        help="Fine-tune adapters of this rank beside frozen weights (16; 16:nf4 for QLoRA).",
    ),
]
Framework = Annotated[
    str | None,
    typer.Option(
        help="Framework: name or YAML file; default: by device.", autocompletion=_names("frameworks")
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="Recipe: name or YAML file; its partial plan is held, --fix changes it.",
        autocompletion=_names("recipes"),
    ),
]
Site = Annotated[
    str | None,
    typer.Option(metavar="FILE.yaml", help="What `learn` found in measured steps or servers of yours."),
]
OneCluster = Annotated[
    str | None,
    typer.Option("--cluster", help="Cluster: name or YAML file.", autocompletion=_names("clusters")),
]
OneSize = Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs of the job.")]
Fix = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Fix a plan field (tensor=8). Repeatable."),
]
Price = Annotated[
    float | None, typer.Option(min=0, help="Dollars per GPU and hour, instead of the list price.")
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--fix", metavar="FIELD=VALUE", help="Set a plan field (tensor=8). Repeatable."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE",
        help="Predict plans that break a rule of the release, as its error names it. Repeatable.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set keys of one variation (a=1,b=2). Repeatable."),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=A,B,C", help="Sweep values of a scenario key. Repeatable; keys form a grid."),
]
Replan = Annotated[bool, typer.Option("--replan", help="Search a new plan for every variation.")]
Limit = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Cap a plan field (pipeline=16). Repeatable."),
]
Objective = Annotated[
    str | None,
    typer.Option(
        help="Rank by time (default), cost or energy; serving: goodput (default), cost, energy, latency."
    ),
]
Top = Annotated[int | None, typer.Option(help="Plans to show (default 5).")]
Headroom = Annotated[
    str | None,
    typer.Option(help="Free memory to keep (10%, 8GiB); default: from the memory model's error."),
]
Offload = Annotated[
    bool, typer.Option("--offload", help="Try optimizer and gradients on the host and on SSDs too.")
]
Schedules = Annotated[
    str | None,
    typer.Option(
        metavar="[offered|all]",
        help="Pipeline schedules to search: offered by the release (default), or all of the catalogue.",
    ),
]
Proven = Annotated[
    bool, typer.Option("--proven", help="Keep to what one measured run near the plan used, and came near.")
]
More = Annotated[
    bool, typer.Option("--more", help="Print more columns, near duplicates and what each rule removed.")
]
Replications = Annotated[
    int | None,
    typer.Option(
        help="Runs of weeks: times that the run is drawn. Serving: seeds, of which medians are told "
        "(whatif: 3, the same for all variations).",
        min=1,
        max=100_000,
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Write launch files of the N plans worth measuring to --folder."),
]
Folder = Annotated[Path, typer.Option(help="Folder of --trials.")]
Raw = Annotated[bool, typer.Option("--all", help="Show near duplicates too, in the order of the objective.")]
Refine = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Run the best N plans on the event engine; of serving, a look at three by default, 0 for none.",
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(metavar="FILE.yaml", help="Write a plan as a scenario file."),
]
Rank = Annotated[int, typer.Option(min=1, help="Rank of the plan that --save writes.")]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write an HTML page with tables and charts."),
]
Csv = Annotated[Path | None, typer.Option(metavar="FILE", help="Write all scored plans as CSV.")]
Tokens = Annotated[float, typer.Option(parser=_number, metavar="N", help="Training tokens (15e12, 15T).")]
Epochs = Annotated[float, typer.Option(min=0.01, max=10_000, help="Passes over these tokens.")]
Days = Annotated[float | None, typer.Option(min=0, help="Deadline, in days.")]
Budget = Annotated[
    float | None,
    typer.Option(parser=_dollars, metavar="USD", help="Dollars at most (2e6, 2M)."),
]
Run = Annotated[
    bool,
    typer.Option(
        "--run", help="Rank by the scenario's run of weeks: plan, checkpoints, period, spares, size."
    ),
]
Quantile = Annotated[str, typer.Option(help="Of the wall time of --run: p50 or p90.")]
Isl = Annotated[
    int | None,
    typer.Option(parser=_tokens, metavar="N", help="Prompt tokens per request (2048, 2k)."),
]
Osl = Annotated[
    int | None,
    typer.Option(parser=_tokens, metavar="N", help="Output tokens per request."),
]
Rate = Annotated[float | None, typer.Option(min=1e-6, help="Requests per second.")]
Images = Annotated[
    str | None,
    typer.Option(
        metavar="[Nx]WxH[@FRAMES]",
        help="Images in a prompt or a trained sequence (2x1280x720), or made by a diffusion model "
        "(1024x1024, 1280x720@81).",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, max=10_000, help="Steps of a diffusion model's sampler."),
]
Latency = Annotated[
    float | None,
    typer.Option(min=1e-6, help="Target of an image or video, s, that 90 % must meet."),
]
Concurrency = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Requests in flight at any time, instead of --rate: each client waits for its answer.",
    ),
]
Ttft = Annotated[
    str | None,
    typer.Option(
        metavar="[pNN=]S",
        help="Target of the time to first token, s; p99=2.0 sets the percentile (default p90).",
    ),
]
Tpot = Annotated[
    str | None,
    typer.Option(metavar="[pNN=]S", help="Target of the time per output token, s."),
]
Together = Annotated[
    bool,
    typer.Option("--together", help="Search no disaggregated prefill and decode."),
]
Deadline = Annotated[
    str | None,
    typer.Option(metavar="SECONDS", help="Time of an agent's whole program, tools counted (120s)."),
]
Pools = Annotated[
    str | None,
    typer.Option(
        metavar="attention",
        help="Try attention on devices of its own beside a decode pool, as no measured server has it.",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(help="Engine preset (`meshwright show engines`)."),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        metavar="N|SHARE",
        help="Tokens of --isl that all prompts share, or their share (3000, 0.75).",
    ),
]
Requests = Annotated[
    Path | None,
    typer.Option(
        help="File of requests for lengths and arrivals (Azure, BurstGPT, Mooncake, ShareGPT ...).",
    ),
]
Use = Annotated[
    str | None,
    typer.Option(help="Lengths and targets of chat, code, agents, batch or embeddings."),
]
Speculate = Annotated[
    str | None,
    typer.Option(
        metavar="KIND[:K]",
        help="Speculation (mtp, eagle3, medusa, ngram ...: tokens), or none.",
    ),
]
Kv = Annotated[str | None, typer.Option(metavar="FORMAT", help="Number format of the KV cache.")]
Types = Annotated[
    str,
    typer.Option(metavar="TYPES", help="GPU types: l4,a100-sxm-80gb=8,h100-sxm@2.5 (=maximum, @price)."),
]
Try = Annotated[
    list[str] | None,
    typer.Option(
        "--try",
        metavar="KEY=V1,V2",
        help="Try policies around rank 1 on the event engine (migrate=off,llumnix). Repeatable.",
    ),
]
Staleness = Annotated[
    float | None,
    typer.Option(
        metavar="STEPS",
        help="Steps by which the weights of an answer may be older than the newest (plan rl); 0: on policy.",
    ),
]
Watts = Annotated[float | None, typer.Option(min=1, help="Power limit of all devices, W.")]


def question(**flags: str | float | None) -> dict[str, object]:
    """Flags that ask or change a question, by argument of the API; numbers as people write them.

    Raises:
        InputError: a size that cannot be read.
    """
    from meshwright.questions.numbers import whole_number
    from meshwright.questions.training import flag

    sizes = ("seq_len", "source_len", "global_batch", "batch_tokens")
    return {
        name: whole_number(value, flag(name)) if name in sizes and isinstance(value, str) else value
        for name, value in flags.items()
    }


Store = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="SQLite file of finished results; a second run skips them."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Parallel processes; default: all cores.")]
Executor = Annotated[str, typer.Option(metavar="NAME", help="Executor: local (default) or ray.")]
Address = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Address of a Ray cluster; default: start one on this machine."),
]


def execution(executor: str, address: str, workers: int | None, store: Path | None) -> ExecutionOf:
    """Execution of long work, checked before the work starts.

    Raises:
        InputError: an unknown executor, an address without Ray, or a file that is no store.
    """
    from core.errors import InputError
    from meshwright.commands.output import note
    from planner.execution import Execution

    if address and executor != "ray":
        raise InputError("names a Ray cluster; --executor ray uses it", "--address")
    execution_of = Execution(executor, address, workers, store)
    if others := execution_of.check():
        note(f"note: {store} holds {others:,} results of other versions, which are not used")
    return execution_of


Pareto = Annotated[
    bool,
    typer.Option(
        "--pareto",
        help="Show Pareto fronts: step time, memory, energy; serving: tokens/s per user, cost, energy.",
    ),
]
Rates = Annotated[
    str, typer.Option(metavar="RATES", help="Requests per second in equal parts of a day: 2,5,9,4.")
]
ColdStart = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds from renting a replica to its first request.",
    ),
]
