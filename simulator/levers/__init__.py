"""Choices of a launch script beyond degrees: kernels, dispatcher, graphs, recomputed modules, formats.

A lever is one file here (``lever.Lever``) and a base of ``Levers`` and ``Choices`` below; all else is derived
from these: which levers plans of one call share, the codes of their values, what is searched and combined,
mechanisms, rules and words. A framework states what its release does by default (``defaults``) and which
values it offers; a recipe and a plan choose. A field that a plan leaves out is the release's default.
"""

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from core.records import record
from simulator.levers import (
    attention,
    binds_processes,
    cross_entropy,
    dispatcher,
    dispatcher_library,
    dropout,
    elementwise,
    fixed_capacity,
    fused_accumulation,
    fused_latent_rope,
    fused_router,
    gradient_bytes,
    graphs,
    grouped_launches,
    launches_ahead,
    linear_context,
    narrow_activation,
    narrow_output,
    narrow_parameters,
    overlap_expert,
    overlap_tensor,
    recompute_modules,
    reduce_bytes,
    rotary,
    scaling,
    skips_blocks,
    states,
    swizzled_scales,
    trains_mtp,
    unsharded_gradients,
    update_in_backward,
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
    "COMBINED",
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
    binds_processes.StatedBindsProcesses,
    linear_context.StatedLinearContext,
    launches_ahead.StatedLaunchesAhead,
    cross_entropy.StatedCrossEntropy,
    trains_mtp.StatedTrainsMtp,
    swizzled_scales.StatedSwizzledScales,
    narrow_activation.StatedNarrowActivation,
    narrow_output.StatedNarrowOutput,
    narrow_parameters.StatedNarrowParameters,
    scaling.StatedScaling,
    fused_accumulation.StatedFusedAccumulation,
    graphs.StatedGraphs,
    dispatcher_library.StatedDispatcherLibrary,
    grouped_launches.StatedGroupedLaunches,
    dispatcher.StatedDispatcher,
    fixed_capacity.StatedFixedCapacity,
    fused_router.StatedFusedRouter,
    skips_blocks.StatedSkipsBlocks,
    rotary.StatedRotary,
    fused_latent_rope.StatedFusedLatentRope,
    update_in_backward.StatedUpdateInBackward,
    unsharded_gradients.StatedUnshardedGradients,
    states.StatedStates,
    reduce_bytes.StatedReduceBytes,
    gradient_bytes.StatedGradientBytes,
    dropout.StatedDropout,
    elementwise.StatedElementwise,
    attention.StatedAttention,
):
    """Choices of a launch script; None is the default of the framework's release."""


@record()
class Choices(
    recompute_modules.ChosenRecomputeModules,
    binds_processes.ChosenBindsProcesses,
    linear_context.ChosenLinearContext,
    launches_ahead.ChosenLaunchesAhead,
    cross_entropy.ChosenCrossEntropy,
    trains_mtp.ChosenTrainsMtp,
    swizzled_scales.ChosenSwizzledScales,
    narrow_activation.ChosenNarrowActivation,
    narrow_output.ChosenNarrowOutput,
    narrow_parameters.ChosenNarrowParameters,
    scaling.ChosenScaling,
    fused_accumulation.ChosenFusedAccumulation,
    graphs.ChosenGraphs,
    dispatcher_library.ChosenDispatcherLibrary,
    grouped_launches.ChosenGroupedLaunches,
    dispatcher.ChosenDispatcher,
    fixed_capacity.ChosenFixedCapacity,
    fused_router.ChosenFusedRouter,
    skips_blocks.ChosenSkipsBlocks,
    rotary.ChosenRotary,
    fused_latent_rope.ChosenFusedLatentRope,
    update_in_backward.ChosenUpdateInBackward,
    unsharded_gradients.ChosenUnshardedGradients,
    states.ChosenStates,
    reduce_bytes.ChosenReduceBytes,
    gradient_bytes.ChosenGradientBytes,
    dropout.ChosenDropout,
    elementwise.ChosenElementwise,
    attention.ChosenAttention,
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

ENTRIES: Mapping[str, Lever] = {name: sys.modules[f"{__name__}.{name}"].LEVER for name in LEVERS}
SWITCHES = (overlap_tensor.LEVER, overlap_expert.LEVER)
"""Plan fields that a search varies as levers, and that no release leaves open."""

VARIED = tuple(
    sorted(
        (lever for lever in (*ENTRIES.values(), *SWITCHES) if lever.acts_on is not None),
        key=lambda lever: lever.acts_on != "recomputation",
    )
)
"""Levers that a search varies, recomputation first."""

COMBINED = tuple(lever.name for lever in VARIED if lever.combined)
"""Levers whose values a search combines."""

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
