"""Plans on a cluster of groups of different nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from meshwright.questions.training import scenario_data
from simulator.kinds import kind_of

if TYPE_CHECKING:
    from meshwright.results import MixedSearchResult

TOP = 5
"""Plans shown."""


def on_groups(scenario: str | Path | Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> bool:
    """Whether a question is about a cluster of groups.

    Raises:
        InputError: a missing argument, or no such scenario.
    """
    data, where, folder = scenario_data(scenario, arguments, "command line")
    return "placement" in kind_of(data, where, folder).keys


def plan_over_groups(
    scenario: str | Path | Mapping[str, Any] | None,
    *,
    fix: Mapping[str, Any] | None = None,
    limit: Mapping[str, Any] | None = None,
    top: int | None = None,
    objective: str | None = None,
    progress: Callable[[float], None] | None = None,
    **arguments: Any,
) -> MixedSearchResult:
    """Rank plans over the groups of a cluster by their step.

    Args:
        scenario: file, shipped name or mapping; ``arguments`` replace its keys.
        fix: plan fields held at a value.
        limit: highest values of plan fields.
        top: plans to keep.
        objective: refused unless ``time``.
        progress: called with the finished share.
        arguments: keys of the question, as in ``meshwright.plan``.

    Raises:
        InputError: a wrong key or value.
    """
    from meshwright.results import MixedSearchResult
    from planner.mixed import search_mixed
    from planner.training.constraints import Constraints

    data, where, folder = scenario_data(scenario, arguments, "command line")
    search = data.get("search")
    stated = search if isinstance(search, Mapping) else {}
    ranked_by = objective or stated.get("objective", "time")
    if ranked_by != "time":
        raise InputError(f"groups are ranked by time, found {ranked_by!r}", "search.objective")
    count = top if top is not None else stated.get("top", TOP)
    if not isinstance(count, int) or count < 1:
        raise InputError(f"top must be 1 or more, found {count}", "--top")
    constraints = Constraints.of(stated.get("fix"), stated.get("limit"), f"{where}: search")
    constraints = constraints.overridden(Constraints.of(fix, limit))
    return MixedSearchResult(search_mixed(data, where, folder, count, constraints, progress))
