"""``meshwright plan rl``: devices, layouts and schedule of post-training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.commands.plan_files import PlanFiles


def plan_rl(scenario: str, staleness: float | None, top: int | None, files: PlanFiles, json: bool) -> None:
    """Search plans of post-training, print them, and write the scenario of one where asked.

    Raises:
        InfeasibleError: no plan fits.
        InputError: a wrong key or value, or a file cannot be written.
    """
    from meshwright.commands.output import note, print_json, progress, show_tables
    from meshwright.jobs.rl import search

    with progress("searching") as advance:
        ranking = search(scenario, staleness, top, advance)
    if json:
        print_json(ranking.to_dict())
    else:
        show_tables(*ranking._tables())
    if files.save is not None:
        files.check_rank(len(ranking.search.plans))
        files.write_mapping(ranking.search.plans[files.rank - 1].data)
        note(f"scenario written: {files.save}")
