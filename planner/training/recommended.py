"""The plan that a scenario's own search recommends."""

from __future__ import annotations

from core.errors import InfeasibleError
from planner.training.constraints import Constraints
from planner.training.headroom import headroom_share
from planner.training.search import SearchResult, search
from simulator.scenario import Scenario


def recommended(scenario: Scenario, where: str) -> SearchResult:
    """The plan that ``plan`` shows first, alone.

    Args:
        scenario: the question; its ``plan`` is not read.
        where: its name in errors.

    Raises:
        InfeasibleError: no plan fits.
        InputError: ``search`` holds a field at a value that it cannot have.
    """
    searched, setting = scenario.search, scenario.setting
    result = search(
        setting,
        setting.cluster.devices,
        Constraints.of_search(searched, where),
        searched.objective,
        headroom=headroom_share(searched.headroom, setting),
        offload=searched.offload,
        recommended=True,
    )
    if not len(result.plans):
        raise InfeasibleError(result.shortfall.message() if result.shortfall else "no plan fits")
    return result
