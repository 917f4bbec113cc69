"""``meshwright plan --run``: plans ranked by the time, cost or energy that their run of weeks needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def plan_runs(
    scenario: str,
    gpus: str | None,
    quantile: str,
    top: int | None,
    arguments: dict[str, Any],
    json: bool,
    html: Path | None = None,
) -> None:
    """Rank runs at every size, print them and write their page; a fixed number of GPUs is a range of one.

    Raises:
        InfeasibleError: no run works at any size.
        InputError: a wrong flag, or a scenario without ``run``.
    """
    from core.errors import InfeasibleError
    from meshwright.api.runs import plan_run
    from meshwright.commands.output import note, print_json, progress, show_tables
    from meshwright.questions.training import size_range
    from meshwright.reports.run_search import describe_run_search, run_search_tables

    ends = None if gpus is None else size_range(gpus)
    with progress("runs") as advance:
        ranking = plan_run(
            scenario or None, gpus=ends, quantile=quantile, top=top, progress=advance, **arguments
        )
    if json:
        print_json(describe_run_search(ranking))
    else:
        show_tables(*run_search_tables(ranking))
    if html is not None and ranking.best is not None:
        ranking.page().write(html)
        note(f"page written: {html}")
    if not any(size.ranked for size in ranking.sizes):
        raise InfeasibleError(f"no run works: {ranking.sizes[0].problem}")
