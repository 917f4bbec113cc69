"""``meshwright plan``: the plans that fit, the best first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.commands.output import Json

if TYPE_CHECKING:
    from planner.prediction import Prediction
    from planner.refine import Refined

FLAGS = {
    "--model": "model",
    "--cluster": "cluster",
    "--gpus": "gpus",
    "--seq-len": "workload.seq_len",
    "--global-batch": "workload.global_batch",
}
"""What a question needs, by the key path of a scenario that says the same."""


def plan(
    scenario: Annotated[str, typer.Argument(help="Scenario YAML, or the name of a shipped one.")] = "",
    model: Annotated[str | None, typer.Option(help="Name, YAML, or Hugging Face config.json.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Name or YAML.")] = None,
    gpus: Annotated[int | None, typer.Option(help="Devices of the job.")] = None,
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
    refine: Annotated[
        int, typer.Option(min=0, metavar="N", help="Time the best N with the event engine too, on all cores.")
    ] = 0,
    json: Json = False,
) -> None:
    """Search all plans for training a model on a cluster, and rank those that fit.

    Flags ask a question of their own, or change that of a scenario.

    [bold]Example:[/bold] meshwright plan --model llama3.1-8b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128
    """  # noqa: E501 - one line to copy
    from hwmodels.errors import InfeasibleError
    from meshwright.commands.output import print_json, progress, show_tables, wide
    from meshwright.reports import plans as report
    from meshwright.reports.refined import describe_refined, refined_table
    from planner.constraints import Constraints
    from planner.prediction import Prediction
    from planner.search import search

    changes = {
        "model": model,
        "cluster": cluster,
        "gpus": gpus,
        "workload.seq_len": seq_len,
        "workload.global_batch": global_batch,
        "workload.precision": precision,
        "framework": framework,
        "search.objective": objective,
        "search.top": top,
    }
    asked, where = _question(scenario, {key: value for key, value in changes.items() if value is not None})
    constraints = Constraints.of(asked.search.fix, asked.search.limit, f"{where}: search")
    constraints = constraints.overridden(Constraints.parse(fix or (), limit or ()))
    with progress("searching") as advance:
        result = search(
            asked.setting,
            asked.setting.cluster.devices,
            constraints,
            asked.search.objective,
            max(asked.search.top, refine),
            advance,
        )
    found = Prediction.of_search(result)
    refined = _refine(found, refine) if refine else []
    if json:
        again = [describe_refined(found, refined, index) for index in range(len(found.plans))]
        print_json(report.describe_search(result, found, again))
    if not len(found.plans):
        raise InfeasibleError(result.shortfall.message() if result.shortfall else "no plan fits")
    if not json:
        again = refined_table(found, refined) if refined else []
        show_tables(report.ranked(found, wide()), *again, *report.verdict(result))


def _refine(found: Prediction, count: int) -> list[Refined]:
    """The best plans on the event engine, in order."""
    from meshwright.commands.output import progress
    from planner.executors.local import cores
    from planner.refine import refine

    plans = list(found.plans)[:count]
    runs: dict[int, Refined] = {}
    with progress("on the event engine") as advance:
        for number, refined in refine(found.setting, plans, cores()):
            runs[number] = refined
            advance(len(runs) / len(plans))
    return [runs[number] for number in sorted(runs)]


def _question(scenario: str, changes: dict[str, Any]) -> tuple[Any, str]:
    """The scenario that flags, or a file changed by flags, ask about; and what to call it in errors."""
    from pathlib import Path

    from hwmodels.errors import InputError
    from meshwright.scenarios import scenario_path
    from simulator.scenario import changed, make_scenario, read_scenario

    if scenario:
        path = scenario_path(scenario)
        return read_scenario(path, changes), str(path)
    missing = [flag for flag, key in FLAGS.items() if key not in changes]
    if missing:
        raise InputError(f"{' '.join(missing)} missing; give a scenario, or all of {' '.join(FLAGS)}")
    data: dict[str, Any] = {}
    for key, value in changes.items():
        data = changed(data, key, value, "command line")
    return make_scenario(data, "command line", Path()), "command line"
