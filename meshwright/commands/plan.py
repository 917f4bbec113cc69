"""``meshwright plan``: the plans that fit, the best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from meshwright.commands import options as given
from meshwright.commands.output import Json

if TYPE_CHECKING:
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.results import PlanSearch

INTERRUPTED = 130


def plan(
    scenario: given.Scenario = "",
    model: given.Model = None,
    cluster: given.Cluster = None,
    gpus: given.Gpus = None,
    seq_len: given.SeqLen = None,
    global_batch: given.GlobalBatch = None,
    batch_tokens: given.BatchTokens = None,
    precision: given.Precision = None,
    framework: given.Framework = None,
    price: given.Price = None,
    fix: given.Fix = None,
    limit: given.Limit = None,
    objective: given.Objective = None,
    top: given.Top = None,
    headroom: given.Headroom = None,
    raw: given.Raw = False,
    refine: given.Refine = 0,
    tokens: given.Tokens = None,
    days: given.Days = None,
    serve: given.Serve = False,
    isl: given.Isl = None,
    osl: given.Osl = None,
    rate: given.Rate = None,
    ttft: given.Ttft = None,
    tpot: given.Tpot = None,
    engine: given.Engine = None,
    together: given.Together = False,
    mix: given.Mix = None,
    watts: given.Watts = None,
    day: given.Day = None,
    cold_start: given.ColdStart = 60.0,
    pareto: given.Pareto = False,
    save: given.Save = None,
    rank: given.Rank = 1,
    html: given.Html = None,
    csv: given.Csv = None,
    json: Json = False,
) -> None:
    """Search all plans for training a model on a cluster, or for serving it, and rank those that fit.

    Flags ask a question of their own, or change that of a scenario. [bold]--serve[/bold] finds the deployment that
    carries most requests within the latency targets.

    [bold]Example:[/bold] meshwright plan --model llama3.1-8b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128
    """  # noqa: E501 - one line to copy
    from meshwright.commands.fronts import show_serving_fronts, show_training_fronts
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.commands.serving_plan import asks_serving, plan_days, plan_mix, plan_serving, refuse_given
    from meshwright.commands.sizing import compare_sizes, count
    from planner.constraints import pairs

    files = PlanFiles(save, rank, html, csv)
    held = {"fix": pairs(fix or (), "--fix"), "limit": pairs(limit or (), "--limit")}
    load = {"isl": isl, "osl": osl, "rate": rate, "ttft": ttft, "tpot": tpot, "engine": engine}
    if day is not None:
        files.refuse("days", "save", "html", "csv")
        refuse_given({"--rate": rate, "--mix": mix, "--watts": watts}, "--day gives the rates")
        asked = {"model": model, "cluster": cluster, "gpus": gpus, **load, **held}
        plan_days(scenario, asked, day, cold_start, refine, json)
        return
    if mix is not None:
        files.refuse("mixes", "save", "html", "csv")
        unused = {"--cluster": cluster, "--gpus": gpus, "--objective": objective}
        refuse_given(unused, "a mix rents the cheapest devices of --mix")
        plan_mix(scenario, {"model": model, **load, **held, "watts": watts}, mix, json)
        return
    refuse_given({"--watts": watts}, "only a mix (--mix) has a power budget")
    if serve or asks_serving(scenario):
        if pareto:
            show_serving_fronts(
                scenario, {"model": model, "cluster": cluster, "gpus": gpus, **load}, held, files, json
            )
            return
        load["split"] = not together
        asked = {"model": model, "cluster": cluster, "gpus": gpus, "objective": objective}
        plan_serving(scenario, {**asked, **load}, held, top, refine, files, json)
        return
    asked = given.question(
        model=model,
        precision=precision,
        seq_len=seq_len,
        global_batch=global_batch,
        batch_tokens=batch_tokens,
        price=price,
    )
    asked |= {"framework": framework, "objective": objective, "headroom": headroom, **held}
    if tokens is not None or days is not None or ".." in (gpus or "") or "," in (cluster or ""):
        files.refuse("comparisons of sizes", "save", "html", "csv")
        compare_sizes(scenario, cluster, gpus, tokens, days, asked, json)
        return
    devices = count(gpus) if gpus else None
    if pareto:
        show_training_fronts(scenario, {**asked, "cluster": cluster, "gpus": devices}, files, json)
        return
    plan_training(
        scenario,
        {**asked, "cluster": cluster, "gpus": devices, "top": top, "raw": raw, "refine": refine},
        files,
        json,
    )


def plan_training(scenario: str, arguments: dict[str, Any], files: PlanFiles, json: bool) -> None:
    """Search training plans, print them, and write the files that were asked for.

    Raises:
        InfeasibleError: no plan fits.
        InputError: a wrong flag, or a file cannot be written.
    """
    from meshwright import api
    from meshwright.commands.output import note, print_json, progress, show_tables, wide
    from meshwright.exporters.placing import export_words, launcher_of
    from meshwright.reports.plans import ranked
    from meshwright.reports.verdict import verdict

    with progress("searching") as advance:
        found = api.plan(
            scenario or None, progress=advance, refining=advance, every=files.csv is not None, **arguments
        )
    setting = found.result.setting
    if setting.training.seq_len > setting.model.max_sequence:
        built = f"the {setting.model.max_sequence:,} that {setting.model.name} was built for"
        note(f"note: sequences of {setting.training.seq_len:,} tokens are longer than {built}")
    if json:
        print_json(found.to_dict())
    elif len(found.result.plans):
        launch = export_words(launcher_of(setting.framework.name, setting.model.name), files.save)
        show_tables(ranked(found.found, wide()), *_refined(found), *verdict(found.result), launch)
    found.check()
    files.write(found)
    if found.interrupted:
        ended = sum(not run.problem for run in found.refined)
        note(f"interrupted: {ended} of {len(found.refined)} plans were timed by the event engine")
        raise typer.Exit(INTERRUPTED)


def _refined(found: PlanSearch) -> list[Any]:
    """Tables of the plans that the event engine timed too."""
    if not found.refined:
        return []
    from meshwright.reports.refined import refined_table

    return refined_table(found.found, list(found.refined))
