"""``meshwright plan --pareto``: fronts of training and of serving plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.api.serving_answers import FrontsAnswer
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.commands.plan_flags import ServeFlags

UNREAD = ("rate", "prefix", "images", "concurrency")
"""Flags of a load that fronts do not read: each point has its own concurrency and computes its prompts."""


def show_serving_fronts(flags: ServeFlags, files: PlanFiles) -> None:
    """Print the fronts of a replica, and write their page if requested.

    Raises:
        InputError: a wrong flag, or one that is missing.
        InfeasibleError: no replica fits.
    """
    from meshwright.api import serving as serving_api
    from meshwright.commands.output import note, progress
    from meshwright.commands.plan_flags import given_of
    from meshwright.commands.serving_plan import check_given, needed, targets_of
    from meshwright.questions.training import device_count

    check_given(flags, needed(flags))
    if unread := list(given_of(flags, UNREAD)):
        note(f"note: {', '.join(unread)} not read: fronts show every concurrency, prompts computed whole")
    names = ("model", "cluster", "isl", "osl", "engine", "use")
    rest: dict[str, Any] = {name: getattr(flags, name) for name in names}
    rest |= {**flags.constraints, **targets_of(flags)}
    gpus = device_count(flags.gpus) if flags.gpus else None
    with progress("searching") as advance:
        fronts = serving_api.serving_front(
            flags.scenario or None,
            gpus=gpus,
            **rest,
            progress=advance,
        )
    _show(fronts, files, flags.json)


def show_training_fronts(scenario: str, arguments: Mapping[str, Any], files: PlanFiles, json: bool) -> None:
    """Print the fronts of training plans, and write their page if requested.

    Raises:
        InfeasibleError: no plan fits.
    """
    from meshwright.api import training as api
    from meshwright.api.serving_answers import FrontsAnswer
    from meshwright.commands.output import progress
    from meshwright.result_base import as_answer
    from planner.training.fronts import training_fronts

    with progress("searching") as advance:
        search = api.plan(scenario or None, progress=advance, every=True, **arguments)
    search.check()
    if search.scored is not None:
        fronts = training_fronts(search.result.setting, search.scored)
        _show(as_answer(FrontsAnswer, fronts), files, json)


def _show(fronts: FrontsAnswer, files: PlanFiles, json: bool) -> None:
    from meshwright.commands.output import tell, write_page

    files.refuse("fronts", "save", "csv")
    tell(fronts, json)
    write_page(fronts, files.html)
