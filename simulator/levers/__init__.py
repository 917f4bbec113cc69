"""Choices of a launch script beyond degrees: kernels, dispatcher, graphs, recomputed modules, formats.

A lever is a field of ``plain``; or, where a search varies it, one file here (``lever.Lever``) and a base of
``Levers`` and ``Choices`` below. All else is derived from these: which levers plans of one call share, the
codes of their values, what is searched and combined, mechanisms, rules and words. A framework states what its
release does by default (``defaults``) and which values it offers; a recipe and a plan choose. A field that a
plan leaves out is the release's default.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from core.records import record
from simulator.levers import (
    dispatcher,
    graphs,
    grouped_launches,
    overlap_expert,
    overlap_tensor,
    plain,
    recompute_modules,
)
from simulator.levers.graphs import GRAPHS_RECOMPUTE
from simulator.levers.lever import ActsOn, Lever
from simulator.levers.overlap_expert import OVERLAP_PARTNER, may_overlap
from simulator.levers.recompute_modules import (
    FULL,
    MODULE_NAMES,
    SELECTIVE,
    ModuleName,
    Recompute,
    modules_code,
    modules_of,
)
from simulator.levers.rule import ReleaseRule, insist, spelled

__all__ = [
    "BY_PLAN",
    "CODED",
    "ENTRIES",
    "FULL",
    "GRAPHS_RECOMPUTE",
    "LEVERS",
    "MODULE_NAMES",
    "OVERLAP_PARTNER",
    "RULES",
    "SELECTIVE",
    "SHARED",
    "VARIED",
    "ActsOn",
    "Choices",
    "Lever",
    "LeverColumns",
    "Levers",
    "ModuleName",
    "Recompute",
    "ReleaseRule",
    "insist",
    "may_overlap",
    "modules_code",
    "modules_of",
    "spelled",
    "stated",
]


class Levers(  # The last base comes first in files and tables.
    recompute_modules.StatedRecomputeModules,
    graphs.StatedGraphs,
    grouped_launches.StatedGroupedLaunches,
    dispatcher.StatedDispatcher,
    plain.StatedPlain,
):
    """Choices of a launch script; None is the default of the framework's release."""


@record()
class Choices(
    recompute_modules.ChosenRecomputeModules,
    graphs.ChosenGraphs,
    grouped_launches.ChosenGroupedLaunches,
    dispatcher.ChosenDispatcher,
    plain.ChosenPlain,
):
    """Every lever with a value: what a release does that states nothing, unless told otherwise."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Choices":
        """The levers among plan fields; other fields are ignored."""
        levers = Levers.model_validate({name: values[name] for name in LEVERS if name in values})
        return cls(**stated(levers))


@record()
class LeverColumns(
    recompute_modules.RecomputeModulesColumn,
    graphs.GraphsColumn,
    grouped_launches.GroupedLaunchesColumn,
    dispatcher.DispatcherColumn,
):
    """Levers of arrays of plans, as codes: those in which plans of one call may differ."""


LEVERS = tuple(each.name for each in fields(Choices))
"""All levers, in the order of their description."""

_SEARCHED = (dispatcher.LEVER, graphs.LEVER, grouped_launches.LEVER, recompute_modules.LEVER)
ENTRIES: Mapping[str, Lever] = {name: Lever(name) for name in LEVERS} | {
    lever.name: lever for lever in (*_SEARCHED, *plain.WORDED)
}
SWITCHES = (overlap_tensor.LEVER, overlap_expert.LEVER)
"""Plan fields that a search varies as levers, and that no release leaves open."""

VARIED = tuple(
    sorted(
        (lever for lever in (*ENTRIES.values(), *SWITCHES) if lever.acts_on is not None),
        key=lambda lever: lever.acts_on != "recomputation",
    )
)
"""Levers that a search varies, recomputation first."""

RULES = tuple(rule for lever in VARIED for rule in lever.rules)
"""What levers need and exclude."""

BY_PLAN = tuple(each.name for each in fields(LeverColumns))
"""Levers in which plans of one call may differ; they act through the ops and passes of a layer only."""

SHARED = tuple(name for name in LEVERS if name not in BY_PLAN)
"""Levers that all plans of one call share."""

CODED: Mapping[str, tuple[str | None, ...]] = {
    each.name: (None, *get_args(each.type))
    for each in fields(Choices)
    if each.name in BY_PLAN and get_origin(each.type) is Literal
}
"""Words of levers by their codes in arrays of plans; None is the default of the release."""


def stated(levers: Levers) -> dict[str, Any]:
    """The levers that are not left to the release."""
    values = ((name, getattr(levers, name)) for name in LEVERS)
    return {name: value for name, value in values if value is not None}
