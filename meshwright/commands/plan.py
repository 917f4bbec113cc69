"""``meshwright plan``: the plans that fit, the best first."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from meshwright.commands.output import Json

TRILLION = 1e12
"""Tokens by which sizes are compared where none are given."""
MOST_DIGITS = 9


def plan(
    scenario: Annotated[str, typer.Argument(help="Scenario YAML, or the name of a shipped one.")] = "",
    model: Annotated[str | None, typer.Option(help="Name, YAML, or Hugging Face config.json.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Name or YAML; several, to compare them: a,b.")] = None,
    gpus: Annotated[
        str | None, typer.Option(help="Devices of the job; a range 256..2048 compares sizes.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    global_batch: Annotated[int | None, typer.Option(help="Sequences in an optimizer step.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, tf32, fp16, bf16 (default), fp8, mxfp8 or nvfp4.")
    ] = None,
    framework: Annotated[str | None, typer.Option(help="Name or YAML; default megatron-core.")] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Hold a plan field, as tensor=8. Repeatable."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Cap a plan field, as pipeline=16. Repeatable."),
    ] = None,
    objective: Annotated[str | None, typer.Option(help="time (default), cost or energy.")] = None,
    top: Annotated[int | None, typer.Option(help="Plans to show (default 5).")] = None,
    headroom: Annotated[
        str | None,
        typer.Option(help="Memory to leave free, as 10% or 8GiB; default from the memory model's error."),
    ] = None,
    raw: Annotated[bool, typer.Option("--all", help="Show the raw order, near duplicates included.")] = False,
    refine: Annotated[
        int, typer.Option(min=0, metavar="N", help="Time the best N with the event engine too, on all cores.")
    ] = 0,
    tokens: Annotated[
        float | None, typer.Option(help="Tokens to train on: compares sizes by days and dollars.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Deadline for all tokens.")] = None,
    json: Json = False,
) -> None:
    """Search all plans for training a model on a cluster, and rank those that fit.

    Flags ask a question of their own, or change that of a scenario.

    [bold]Example:[/bold] meshwright plan --model llama3.1-8b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128
    """  # noqa: E501 - one line to copy
    from meshwright import api
    from meshwright.commands.output import print_json, progress, show_tables, wide
    from meshwright.reports.plans import ranked
    from meshwright.reports.refined import refined_table
    from meshwright.reports.verdict import verdict
    from planner.constraints import pairs

    several = ".." in (gpus or "") or "," in (cluster or "")
    if tokens is not None or days is not None or several:
        sizes = {"model": model, "seq_len": seq_len, "global_batch": global_batch, "precision": precision}
        sizes |= {"framework": framework, "objective": objective, "headroom": headroom}
        sizes |= {"fix": pairs(fix or (), "--fix"), "limit": pairs(limit or (), "--limit")}
        _compare_sizes(scenario, cluster, gpus, tokens, days, sizes, json)
        return
    with progress("searching") as advance:
        found = api.plan(
            scenario or None,
            model=model,
            cluster=cluster,
            gpus=_count(gpus) if gpus else None,
            seq_len=seq_len,
            global_batch=global_batch,
            precision=precision,
            framework=framework,
            fix=pairs(fix or (), "--fix"),
            limit=pairs(limit or (), "--limit"),
            objective=objective,
            top=top,
            headroom=headroom,
            raw=raw,
            refine=refine,
            progress=advance,
            refining=advance,
        )
    if json:
        print_json(found.to_dict())
    elif len(found.result.plans):
        again = refined_table(found.found, list(found.refined)) if found.refined else []
        show_tables(ranked(found.found, wide()), *again, *verdict(found.result))
    found.check()


def _count(text: str) -> int:
    """A number of devices as typed.

    Raises:
        InputError: it is none.
    """
    from hwmodels.errors import InputError

    if not text.isdigit() or len(text) > MOST_DIGITS:
        raise InputError(f"must be a number of devices or a range 256..2048, found {text!r}", "--gpus")
    return int(text)


def _compare_sizes(
    scenario: str,
    cluster: str | None,
    gpus: str | None,
    tokens: float | None,
    days: float | None,
    arguments: dict[str, Any],
    json: bool,
) -> None:
    """Plan every size and cluster; a fixed number of GPUs is a range of one.

    Raises:
        InfeasibleError: no plan fits at any size, or none meets the deadline.
    """
    from hwmodels.errors import InfeasibleError
    from meshwright import api
    from meshwright.commands.output import print_json, progress, show_tables
    from meshwright.reports.sizing import describe_sizing, sizing_tables

    ends = None
    if gpus is not None:
        least, _, most = gpus.partition("..")
        ends = _count(least), _count(most or least)
    names = [name.strip() for name in cluster.split(",") if name.strip()] if cluster else []
    with progress("sizes") as advance:
        wanted = TRILLION if tokens is None else tokens
        sizing = api.size(
            scenario or None,
            tokens=wanted,
            days=days,
            clusters=names,
            gpus=ends,
            progress=advance,
            **arguments,
        )
    if json:
        print_json(describe_sizing(sizing))
    else:
        show_tables(*sizing_tables(sizing))
    if sizing.fastest is None:
        raise InfeasibleError("no plan fits at any size")
    if sizing.cheapest is None:
        raise InfeasibleError(f"no size trains {wanted:g} tokens in {days:g} days")
