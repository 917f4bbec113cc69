"""``meshwright plan --pareto``: fronts of training and of serving plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.commands.plan_files import PlanFiles
    from planner.pareto import Fronts

UNREAD = ("rate", "prefix", "concurrency")
"""Flags of a load that fronts do not read: each point has its own concurrency and computes its prompts."""


def show_serving_fronts(
    scenario: str,
    arguments: Mapping[str, Any],
    constraints: Mapping[str, Mapping[str, str]],
    files: PlanFiles,
    json: bool,
) -> None:
    """Print the fronts of a replica, and write their page if requested.

    Raises:
        InputError: a wrong flag, or one that is missing.
        InfeasibleError: no replica fits.
    """
    from meshwright.api import serving as serving_api
    from meshwright.commands.output import note, progress
    from meshwright.commands.serving_plan import check_given, needed, targets_of
    from meshwright.commands.sizing import count

    check_given(scenario, arguments, needed(arguments))
    if unread := [f"--{name}" for name in UNREAD if arguments.get(name) is not None]:
        note(f"note: {', '.join(unread)} not read: fronts show every concurrency, prompts computed whole")
    rest = {name: arguments[name] for name in ("model", "cluster", "isl", "osl", "engine", "use")}
    rest |= targets_of(arguments)
    gpus = count(arguments["gpus"]) if arguments["gpus"] else None
    with progress("searching") as advance:
        fronts = serving_api.serving_front(
            scenario or None,
            gpus=gpus,
            **rest,
            fix=constraints["fix"],
            limit=constraints["limit"],
            progress=advance,
        )
    _show(fronts, files, json)


def show_training_fronts(scenario: str, arguments: Mapping[str, Any], files: PlanFiles, json: bool) -> None:
    """Print the fronts of training plans, and write their page if requested.

    Raises:
        InfeasibleError: no plan fits.
    """
    from meshwright.api import training as api
    from meshwright.commands.output import progress
    from planner.fronts import training_fronts

    with progress("searching") as advance:
        search = api.plan(scenario or None, progress=advance, every=True, **arguments)
    search.check()
    if search.scored is not None:
        _show(training_fronts(search.result.setting, search.scored), files, json)


def _show(fronts: Fronts, files: PlanFiles, json: bool) -> None:
    from meshwright.commands.output import note, print_json, show_tables
    from meshwright.reports.fronts import describe_fronts, front_tables

    files.refuse("fronts", "save", "csv")
    if files.html is not None:
        from meshwright.pages.fronts import write_fronts

        write_fronts(files.html, fronts)
    if json:
        print_json(describe_fronts(fronts))
    else:
        show_tables(*front_tables(fronts))
    if files.html is not None:
        note(f"page written: {files.html}")
