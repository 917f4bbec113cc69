"""``meshwright plan``: a ranking of the plans that fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from core.errors import InputError
from meshwright.commands import INTERRUPTED, options
from meshwright.commands.flags import parameters_of, with_signature
from meshwright.commands.plan_flags import (
    BY_SCENARIO,
    DayFlags,
    ImageFlags,
    MixFlags,
    RankingFlags,
    RlFlags,
    ServeFlags,
    SizeFlags,
    TrainFlags,
    read_as,
    refuse_unread,
)

if TYPE_CHECKING:
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.results import PlanSearch
    from planner.execution import Execution

LEVERS = {"speculate": "speculation", "kv": "kv"}
"""Flags of serving that fix a field."""
POST_TRAINING = ("model", "cluster", "gpus", "framework", "isl", "osl")
"""Flags that ask or change a question of post-training."""


def _plan(**values: Any) -> None:
    """Search the plans of a scenario, and rank those that fit; flags change its keys.

    [bold]One question each, with shorter help:[/bold] meshwright plan train | serve | mix | day | size | rl. A
    scenario says itself whether it trains, serves or post-trains; without one, flags ask about training.

    [bold]Example:[/bold] meshwright plan llama3-8b-64-h100 --gpus 128

    [bold]Training:[/bold] meshwright plan train --model llama3.1-8b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128

    [bold]Serving:[/bold] meshwright plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 8 --isl 1000 --osl 200 --rate 20 --ttft 0.5 --tpot 0.03
    """  # noqa: E501 - one line to copy
    from meshwright.commands.serving_plan import planned_by

    answer(planned_by(values["scenario"]) or "train", values)


plan = with_signature(_plan, list(parameters_of((*BY_SCENARIO.values(), ImageFlags)).values()))


def answer(name: str, values: Mapping[str, Any]) -> None:
    """Answer a question of ``plan``.

    Args:
        name: of the question.
        values: of flags, those of other questions too; these must have their defaults.

    Raises:
        InputError: a flag that the question does not read, a wrong one, or one that is missing.
        InfeasibleError: no plan fits.
    """
    from meshwright.commands.diffusion_plan import check_makes_images, makes_images, plan_diffusion
    from meshwright.commands.serving_plan import plan_days, plan_mix

    if name == "serve" and makes_images(values["model"]):
        plan_diffusion(read_as(ImageFlags, values, "plans of diffusion models do not read it"))
    elif name == "serve":
        if values["images"] is not None and values["model"] is not None:
            check_makes_images(values["model"])
        _answer_serving(read_as(ServeFlags, values))
    elif name == "mix":
        plan_mix(read_as(MixFlags, values))
    elif name == "day":
        plan_days(read_as(DayFlags, values))
    elif name == "size":
        _answer_sizes(read_as(SizeFlags, values))
    elif name == "rl":
        _answer_post_training(read_as(RlFlags, values, "post-training reads its scenario"))
    else:
        _answer_training(read_as(TrainFlags, values))


def _files(flags: RankingFlags | RlFlags, html: Path | None = None) -> PlanFiles:
    """The files to write.

    Raises:
        InputError: a wrong path, or a rank without a file of its plan.
    """
    from meshwright.commands.plan_files import PlanFiles

    if flags.save is None:
        refuse_unread(flags, "not saved")
    return PlanFiles(flags.save, flags.rank, html, getattr(flags, "csv", None))


def _answer_serving(flags: ServeFlags) -> None:
    from meshwright.commands.fronts import show_serving_fronts
    from meshwright.commands.serving_plan import plan_serving

    files = _files(flags, flags.html)
    if flags.pareto:
        refuse_unread(flags, "fronts of deployments")
        show_serving_fronts(flags, files)
        return
    constraints = flags.constraints
    constraints["fix"] |= _levers(flags, constraints["fix"])
    try:
        plan_serving(flags, constraints, _execution(flags, bool(flags.tries)), files)
    except InputError as error:
        _name_lever(flags, error)
        raise


def _name_lever(flags: ServeFlags, error: InputError) -> None:
    """Raise an error of a lever's field again under the lever's own flag.

    Raises:
        InputError: the field is fixed by a flag of its own.
    """
    for name, lever in LEVERS.items():
        prefix = f"{lever}: "
        if error.where == "--fix" and error.problem.startswith(prefix) and getattr(flags, name) is not None:
            raise InputError(error.problem.removeprefix(prefix), f"--{name}") from None


def _levers(flags: ServeFlags, fixed: dict[str, Any]) -> dict[str, Any]:
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


def _execution(flags: RankingFlags, tries: bool = False) -> Execution:
    """Where --refine runs; ``tries``: policies are tried on the event engine too.

    Raises:
        InputError: a wrong flag, or one without --refine.
    """
    if not flags.refine and not tries:
        refuse_unread(flags, "not refined")
    return options.execution(flags.executor, flags.address, flags.workers, flags.store)


def _answer_sizes(flags: SizeFlags) -> None:
    from meshwright.commands.sizing import compare_sizes

    compare_sizes(flags, flags.tokens, flags.days, flags.budget, flags.epochs)


def _answer_post_training(flags: RlFlags) -> None:
    """Devices, layouts and schedule of post-training.

    Raises:
        InfeasibleError: no plan fits.
        InputError: a wrong key or value, or a file cannot be written.
    """
    from meshwright.commands.output import note, progress, tell
    from meshwright.jobs.rl import search
    from meshwright.questions.post_training import rl_question, workload_words

    files = _files(flags, flags.html)
    question = rl_question(flags.scenario, {name: getattr(flags, name) for name in POST_TRAINING})
    with progress("searching") as advance:
        ranking = search(question, flags.staleness, flags.top, advance)
    if not flags.scenario:
        note(f"workload: {workload_words(question[0]['workload'])}")
    tell(ranking, flags.json)
    files.write_ranking(ranking)


def _answer_runs(flags: TrainFlags) -> None:
    """Plans ranked by their run of weeks at every size; a fixed number of GPUs is a range of one.

    Raises:
        InfeasibleError: no run works at any size.
        InputError: a wrong flag, or a scenario without ``run``.
    """
    from core.errors import InfeasibleError
    from meshwright.api.runs import plan_run
    from meshwright.commands.output import progress, tell, write_page
    from meshwright.questions.training import size_range

    ends = None if flags.gpus is None else size_range(flags.gpus)
    question = {**flags.arguments, "cluster": flags.cluster, "quantile": flags.quantile, "top": flags.top}
    with progress("runs") as advance:
        ranking = plan_run(flags.scenario or None, gpus=ends, progress=advance, **question)
    tell(ranking, flags.json)
    if ranking.best is not None:
        write_page(ranking, flags.html)
    if not any(size.ranked for size in ranking.sizes):
        raise InfeasibleError(f"no run works: {ranking.sizes[0].problem}")


def _answer_groups(flags: TrainFlags, arguments: Mapping[str, Any], files: PlanFiles) -> None:
    """Plans on a cluster of groups: which group carries which stages or replicas.

    Raises:
        InfeasibleError: no plan fits.
        InputError: a wrong key or value, or a file cannot be written.
    """
    from meshwright.api.groups import plan_over_groups
    from meshwright.commands.output import progress, tell

    files.refuse("rankings of groups", "csv")
    with progress("searching") as advance:
        ranking = plan_over_groups(flags.scenario or None, progress=advance, **arguments)
    if flags.json or ranking.search.plans:
        tell(ranking, flags.json)
    ranking.check()
    files.write_ranking(ranking)


def _answer_training(flags: TrainFlags) -> None:
    from meshwright.api.groups import on_groups
    from meshwright.commands.fronts import show_training_fronts
    from meshwright.commands.sizing import compare_sizes
    from meshwright.questions.training import device_count

    files = _files(flags, flags.html)
    if flags.run:
        refuse_unread(flags, "runs")
        _answer_runs(flags)
        return
    if ".." in (flags.gpus or "") or "," in (flags.cluster or ""):
        refuse_unread(flags, "sizes")
        compare_sizes(flags)
        return
    arguments = flags.arguments
    arguments |= {"cluster": flags.cluster, "gpus": device_count(flags.gpus) if flags.gpus else None}
    if on_groups(flags.scenario or None, arguments):
        refuse_unread(flags, "groups")
        _answer_groups(flags, {**arguments, "top": flags.top}, files)
        return
    if flags.pareto:
        refuse_unread(flags, "fronts")
        show_training_fronts(flags.scenario, arguments, files, flags.json)
        return
    names = ("recipe", "site", "top", "offload", "raw", "proven")
    arguments |= {name: getattr(flags, name) for name in names}
    arguments["schedules"] = flags.schedules or "offered"
    arguments["refine"] = flags.refine or 0
    arguments["execution"] = _execution(flags)
    plan_training(flags, arguments, files)


def plan_training(flags: TrainFlags, arguments: dict[str, Any], files: PlanFiles) -> None:
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
    from meshwright.commands.plan_notes import note_defaults, note_partial_node, note_rounder_batch
    from meshwright.exporters.launchers import export_words, launcher_of
    from meshwright.reports.plans import ranked
    from meshwright.reports.verdict import headline, verdict

    with progress("searching") as advance:
        search = api.plan(
            flags.scenario or None,
            progress=advance,
            refining=advance,
            every=files.csv is not None or files.html is not None,
            **arguments,
        )
    setting = search.result.setting
    note_model(setting.model, setting.training.seq_len)
    note_batch(setting.training.global_batch, setting.training.seq_len)
    note_defaults(flags.scenario, arguments, search)
    note_partial_node(search)
    if flags.json:
        print_json(search.to_dict())
    elif len(search.result.plans):
        launch = export_words(launcher_of(setting.framework.name, setting.model.name), files.save)
        show_tables(
            headline(search.found),
            ranked(search.found, wide(), flags.more),
            *_refined(search),
            *verdict(search.result, search.found, flags.more),
            launch,
        )
    search.check()
    note_rounder_batch(flags.scenario, arguments, search)
    files.write(search)
    if flags.trials is not None:
        _write_trials(search, flags.trials, flags.folder)
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
