"""``meshwright plan`` on a cluster of groups: which group carries which stages or replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.commands.plan_files import PlanFiles


def plan_groups(scenario: str, arguments: Mapping[str, Any], files: PlanFiles, json: bool) -> None:
    """Search plans over the groups, print them, and write their page and the scenario of one where asked.

    Raises:
        InfeasibleError: no plan fits.
        InputError: a wrong key or value, or a file cannot be written.
    """
    from meshwright.api.groups import plan_over_groups
    from meshwright.commands.output import note, print_json, progress, show_tables

    files.refuse("rankings of groups", "csv")
    with progress("searching") as advance:
        ranking = plan_over_groups(scenario or None, progress=advance, **arguments)
    if json:
        print_json(ranking.to_dict())
    elif ranking.search.plans:
        show_tables(*ranking._tables())
    ranking.check()
    if files.save is not None:
        files.check_rank(len(ranking.search.plans))
        files.write_mapping(ranking.search.plans[files.rank - 1].data)
        note(f"scenario written: {files.save}")
    if files.html is not None:
        ranking.page().write(files.html)
        note(f"page written: {files.html}")
