"""``meshwright plan``: a ranking of the plans that fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from core.errors import InputError
from meshwright.commands import INTERRUPTED, options
from meshwright.commands.flags import COLD_START_S, TRIALS, PlanFlags, spread

if TYPE_CHECKING:
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.results import PlanSearch
    from planner.execution import Execution


ASKS = ("prefix", "requests", "use", "concurrency")
LEVERS = {"speculate": "speculation", "kv": "kv"}
"""Flags of a deployment's search alone; levers fix a field."""
OF_IMAGES = ("images", "steps", "latency")
OF_SERVING = ("isl", "osl", "rate", "ttft", "tpot", "engine", "together", "tries", *ASKS, *LEVERS, *OF_IMAGES)
OF_TRAINING = (
    *(
        "seq_len",
        "global_batch",
        "batch_tokens",
        "adapter",
        "framework",
        "allow",
        "recipe",
        "headroom",
        "offload",
        "schedules",
        "raw",
    ),
    *("proven", "trials", "tokens", "days", "budget"),
)
"""Flags that only one of both kinds of question reads."""
OTHERWISE_IN_SERVING = {
    "precision": "serving plans take --fix weights=fp8 and --fix kv=fp8",
    "price": "serving plans take a price with the GPU type (--cluster dgx-h100=8@2.5)",
}
"""Flags of training that serving plans spell otherwise."""
OF_POST_TRAINING = ("scenario", "staleness", "top", "save", "rank", "json")
"""Flags that post-training reads; its scenario says the rest."""
OF_RANKINGS = ("objective", "top", "refine", "together", "tries")
SPELLINGS = {"raw": "--all", "tries": "--try"}


@spread
def plan(flags: PlanFlags) -> None:
    """Search training plans or serving deployments, and rank those that fit.

    [bold]One question each, with shorter help:[/bold] meshwright plan train | serve | mix | day | size. A scenario
    (plan FILE) says itself what it asks; flags change its keys, or replace it.

    [bold]Example:[/bold] meshwright plan train --model llama3.1-8b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128

    [bold]Serving:[/bold] meshwright plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 8 --isl 1000 --osl 200 --rate 20 --ttft 0.5 --tpot 0.03
    """  # noqa: E501 - one line to copy
    answer(flags)
    _name_question(flags)


def _name_question(flags: PlanFlags) -> None:
    """Say which question the flags ask, whose own command reads no other flags."""
    from meshwright.commands.output import note

    values = {"day": flags.day, "mix": flags.mix, "serve": flags.serve or None, "size": flags.tokens}
    question = next((name for name, value in values.items() if value is not None), "")
    if question:
        words = {"day": "--day", "mix": "--mix", "serve": "--serve", "size": "--tokens"}[question]
        note(f"note: `plan {words}` becomes `plan {question}` in the next version")


def answer(flags: PlanFlags) -> None:
    """Run ``plan``; one attribute per flag."""
    from meshwright.commands.diffusion_plan import makes_images, plan_diffusion
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.commands.serving_plan import plan_days, plan_mix, planned_by, refuse_given
    from planner.constraints import pairs

    if flags.serve and makes_images(flags):
        plan_diffusion(flags)
        return
    _refuse_unread(flags)
    files = PlanFiles(flags.save, flags.rank, flags.html, flags.csv)
    constraints = {"fix": pairs(flags.fix or (), "--fix"), "limit": pairs(flags.limit or (), "--limit")}
    load = {name: getattr(flags, name) for name in ("isl", "osl", "rate", "ttft", "tpot", "engine")}
    place = {"model": flags.model, "cluster": flags.cluster, "gpus": flags.gpus}
    if flags.day is not None:
        files.refuse("days", "save", "csv")
        unused = {"--rate": flags.rate, "--mix": flags.mix, "--watts": flags.watts}
        refuse_given(unused, "--day gives the rates")
        arguments = {**place, **load, **constraints}
        plan_days(
            flags.scenario, arguments, flags.day, flags.cold_start, flags.refine or 0, flags.json, flags.html
        )
    elif flags.mix is not None:
        files.refuse("mixes", "save", "csv")
        unused = {"--cluster": flags.cluster, "--gpus": flags.gpus, "--objective": flags.objective}
        refuse_given(unused, "a mix rents the cheapest devices of --mix")
        arguments = {
            "model": flags.model,
            **load,
            **constraints,
            "watts": flags.watts,
            "split": not flags.together,
        }
        plan_mix(flags.scenario, arguments, flags.mix, flags.refine or 0, flags.json, flags.html)
    elif planned_by(flags.scenario) == "rl":
        from meshwright.commands.plan_rl import plan_rl

        plan_rl(flags.scenario, flags.staleness, flags.top, files, flags.json)
    elif flags.serve or planned_by(flags.scenario) == "serve":
        _answer_serving(flags, {**place, **load}, constraints, files)
    else:
        refuse_given({"--watts": flags.watts}, "only serving plans have a power budget")
        _answer_training(flags, constraints, files)


def _refuse_unread(flags: PlanFlags) -> None:
    """Refuse flags that the question does not read, which would change nothing in silence.

    Raises:
        InputError: such a flag is given.
    """
    from meshwright.commands.serving_plan import planned_by, refuse_given
    from meshwright.questions.training import flag

    def refuse(names: Iterable[str], why: str) -> None:
        unread = {SPELLINGS.get(name, flag(name)): getattr(flags, name) or None for name in names}
        refuse_given(unread, why)

    day, mix = flags.day is not None, flags.mix is not None
    if planned_by(flags.scenario) == "rl":
        refuse(_given(flags, OF_POST_TRAINING), "post-training reads its scenario")
        return
    refuse_given({"--staleness": flags.staleness}, "it is of post-training (plan rl)")
    if flags.serve or day or mix or planned_by(flags.scenario) == "serve":
        refuse(OF_TRAINING, "serving plans do not read it")
        for name, why in OTHERWISE_IN_SERVING.items():
            refuse((name,), why)
        refuse(OF_IMAGES, "only plans of diffusion models read it")
    else:
        refuse(OF_SERVING, "only serving plans (--serve) read it")
    if flags.save is None and flags.rank != 1:
        refuse(("rank",), "it says which plan --save writes")
    if day or mix:
        refuse((*ASKS, *LEVERS, "site", "more"), "it is of rankings of deployments")
        read = ("refine", "together") if mix else ("refine",)
        refuse((*(name for name in OF_RANKINGS if name not in read), "pareto"), "it is of rankings")
    if not day and flags.cold_start != COLD_START_S:
        refuse(("cold_start",), "only --day starts replicas")


def _given(flags: PlanFlags, read: Iterable[str]) -> Iterator[str]:
    """Flags that differ from their defaults, beside those that a question reads."""
    for each in fields(flags):
        if each.name not in read and getattr(flags, each.name) != each.default:
            yield each.name


def _answer_serving(
    flags: PlanFlags, arguments: dict[str, Any], constraints: dict[str, Any], files: PlanFiles
) -> None:
    from meshwright.commands.fronts import show_serving_fronts
    from meshwright.commands.serving_plan import plan_serving, refuse_given
    from meshwright.questions.policies import tried_policies

    if flags.pareto:
        refuse_given({"--watts": flags.watts}, "fronts show every power")
        unused = {f"--{name}": getattr(flags, name) for name in ("requests", *LEVERS, "site")}
        refuse_given({**unused, "--try": flags.tries}, "fronts do not read it")
        arguments |= {name: getattr(flags, name) for name in ASKS}
        show_serving_fronts(flags.scenario, arguments, constraints, files, flags.json)
        return
    arguments |= {name: getattr(flags, name) for name in (*ASKS, "site")}
    constraints = {**constraints, "fix": constraints["fix"] | _levers(flags, constraints["fix"])}
    arguments = {**arguments, "objective": flags.objective, "split": not flags.together, "watts": flags.watts}
    arguments["tries"] = tried_policies(flags.tries or ())
    try:
        plan_serving(
            flags.scenario,
            arguments,
            constraints,
            flags.top,
            flags.refine,
            _execution(flags),
            files,
            flags.json,
            flags.more,
        )
    except InputError as error:
        _name_lever(flags, error)
        raise


def _name_lever(flags: PlanFlags, error: InputError) -> None:
    """Raise an error of a lever's field again under the lever's own flag.

    Raises:
        InputError: the field is fixed by a flag of its own.
    """
    for name, lever in LEVERS.items():
        prefix = f"{lever}: "
        if error.where == "--fix" and error.problem.startswith(prefix) and getattr(flags, name) is not None:
            raise InputError(error.problem.removeprefix(prefix), f"--{name}") from None


def _levers(flags: PlanFlags, fixed: dict[str, Any]) -> dict[str, Any]:
    """Fields that flags of their own fix.

    Raises:
        InputError: the field is fixed with --fix too.
    """
    levers = {
        field: getattr(flags, name) for name, field in LEVERS.items() if getattr(flags, name) is not None
    }
    twice = next((name for name, field in LEVERS.items() if field in levers and field in fixed), None)
    if twice is not None:
        raise InputError(f"is fixed twice: --{twice} {getattr(flags, twice)} and --fix", f"--{twice}")
    return levers


def _execution(flags: PlanFlags) -> Execution:
    """Where --refine runs.

    Raises:
        InputError: a wrong flag, or one without --refine.
    """
    from meshwright.commands.serving_plan import refuse_given

    if not flags.refine and not flags.tries:
        unused = {"--store": flags.store, "--workers": flags.workers, "--address": flags.address or None}
        unused |= {"--executor": flags.executor if flags.executor != "local" else None}
        refuse_given(unused, "it says where --refine runs")
    return options.execution(flags.executor, flags.address, flags.workers, flags.store)


def _answer_training(flags: PlanFlags, constraints: dict[str, Any], files: PlanFiles) -> None:
    from meshwright.api.groups import on_groups
    from meshwright.commands.fronts import show_training_fronts
    from meshwright.commands.plan_groups import UNREAD, plan_groups
    from meshwright.commands.serving_plan import refuse_given
    from meshwright.commands.sizing import compare_sizes, count
    from meshwright.questions.training import flag

    names = ("model", "precision", "adapter", "seq_len", "global_batch", "batch_tokens", "price")
    arguments = options.question(**{name: getattr(flags, name) for name in names})
    told = ("framework", "objective", "headroom", "allow")
    arguments |= {name: getattr(flags, name) for name in told} | constraints
    unranked = {
        "--recipe": flags.recipe,
        "--offload": flags.offload or None,
        "--schedules": flags.schedules,
    }
    unranked |= {
        "--proven": flags.proven or None,
        "--more": flags.more or None,
        "--site": flags.site,
        "--trials": flags.trials,
    }
    if flags.run:
        from meshwright.commands.plan_run import plan_runs

        files.refuse("rankings of runs", "save", "csv")
        refuse_given(unranked, "rankings of one size read it")
        arguments |= {"cluster": flags.cluster}
        wanted = flags.scenario, flags.gpus, flags.quantile, flags.top
        plan_runs(*wanted, arguments, flags.json, flags.html)
        return
    sizes = any(value is not None for value in (flags.tokens, flags.days, flags.budget))
    sizes = sizes or ".." in (flags.gpus or "") or "," in (flags.cluster or "")
    if sizes or flags.pareto:
        refuse_given(unranked, "rankings of one size read it")
    if sizes:
        files.refuse("comparisons of sizes", "save", "csv")
        wanted = flags.scenario, flags.cluster, flags.gpus, flags.tokens, flags.days, flags.budget
        compare_sizes(*wanted, arguments, flags.json, files.html)
        return
    arguments |= {"cluster": flags.cluster, "gpus": count(flags.gpus) if flags.gpus else None}
    if on_groups(flags.scenario or None, arguments):
        unread = {flag(name): getattr(flags, name) or None for name in UNREAD}
        refuse_given({**unread, "--pareto": flags.pareto or None}, "a ranking of groups does not read it")
        plan_groups(flags.scenario, {**arguments, "top": flags.top}, files, flags.json)
        return
    if flags.pareto:
        show_training_fronts(flags.scenario, arguments, files, flags.json)
        return
    arguments |= {
        name: getattr(flags, name) for name in ("recipe", "site", "top", "offload", "raw", "proven")
    }
    arguments["schedules"] = flags.schedules or "offered"
    arguments["refine"] = flags.refine or 0
    arguments["execution"] = _execution(flags)
    plan_training(flags.scenario, arguments, files, flags.json, flags.more, flags.trials, flags.folder)


def plan_training(
    scenario: str,
    arguments: dict[str, Any],
    files: PlanFiles,
    json: bool,
    more: bool = False,
    trials: int | None = None,
    folder: Path = TRIALS,
) -> None:
    """Search training plans, print them, and write the requested files.

    Raises:
        InfeasibleError: no plan fits.
        InputError: a wrong flag, or a file cannot be written.
    """
    from meshwright.api import training as api
    from meshwright.commands.output import (
        note,
        note_batch,
        note_model,
        print_json,
        progress,
        show_tables,
        wide,
    )
    from meshwright.commands.plan_notes import note_defaults, note_rounder_batch
    from meshwright.exporters.launchers import export_words, launcher_of
    from meshwright.reports.plans import ranked
    from meshwright.reports.verdict import headline, verdict

    with progress("searching") as advance:
        search = api.plan(
            scenario or None,
            progress=advance,
            refining=advance,
            every=files.csv is not None or files.html is not None,
            **arguments,
        )
    setting = search.result.setting
    note_model(setting.model, setting.training.seq_len)
    note_batch(setting.training.global_batch, setting.training.seq_len)
    note_defaults(scenario, arguments, search)
    if json:
        print_json(search.to_dict())
    elif len(search.result.plans):
        launch = export_words(launcher_of(setting.framework.name, setting.model.name), files.save)
        show_tables(
            headline(search.found),
            ranked(search.found, wide(), more),
            *_refined(search),
            *verdict(search.result, search.found, more),
            launch,
        )
    search.check()
    note_rounder_batch(scenario, arguments, search)
    files.write(search)
    if trials is not None:
        _write_trials(search, trials, folder)
    if search.interrupted:
        ended = sum(not run.problem for run in search.refined)
        note(f"interrupted: {ended} of {len(search.refined)} plans were timed by the event engine")
        raise typer.Exit(INTERRUPTED)


def _write_trials(search: PlanSearch, count: int, folder: Path) -> None:
    """Write scenario and launch files of the plans worth measuring, one folder each.

    Raises:
        InputError: fewer plans are shown, no launcher of the framework, or an unwritable folder.
    """
    import yaml

    from core.files import write_text
    from meshwright.api.launch import export
    from meshwright.commands.output import note
    from meshwright.exporters.launchers import launcher_of
    from meshwright.reports.units import percent

    setting = search.result.setting
    target = launcher_of(setting.framework.name, setting.model.name)
    for number, (rank, gain) in enumerate(search.trials(count), start=1):
        place = folder / f"trial-{number}"
        place.mkdir(parents=True, exist_ok=True)
        write_text(place / "plan.yaml", yaml.safe_dump(search.scenario(rank - 1), sort_keys=False))
        if target:
            export(search, target, place, rank=rank)
        worth = f"expected to save {percent(gain)} of the step"
        note(f"{place}: rank {rank}, {search.plans[rank - 1].plan.describe()}; {worth}")


def _refined(search: PlanSearch) -> list[Any]:
    """Tables of the plans timed on the event engine."""
    if not search.refined:
        return []
    from meshwright.reports.refined import refined_table

    return refined_table(search.found, list(search.refined))
