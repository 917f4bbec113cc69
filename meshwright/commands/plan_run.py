"""``meshwright plan --run``: plans ranked by the time, cost or energy that their run of weeks needs."""

from __future__ import annotations

from typing import Any


def plan_runs(
    scenario: str, gpus: str | None, quantile: str, top: int | None, arguments: dict[str, Any], json: bool
) -> None:
    """Rank runs at every size and print them; a fixed number of GPUs is a range of one.

    Raises:
        InfeasibleError: no run works at any size.
        InputError: a wrong flag, or a scenario without ``run``.
    """
    from core.errors import InfeasibleError
    from meshwright.api.runs import plan_run
    from meshwright.commands.output import print_json, progress, show_tables
    from meshwright.commands.sizing import count
    from meshwright.reports.run_search import describe_run_search, run_search_tables

    ends = None
    if gpus is not None:
        least, _, most = gpus.partition("..")
        ends = count(least), count(most or least)
    with progress("runs") as advance:
        ranking = plan_run(
            scenario or None, gpus=ends, quantile=quantile, top=top, progress=advance, **arguments
        )
    if json:
        print_json(describe_run_search(ranking))
    else:
        show_tables(*run_search_tables(ranking))
    if not any(size.ranked for size in ranking.sizes):
        raise InfeasibleError(f"no run works: {ranking.sizes[0].problem}")
