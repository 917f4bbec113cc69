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
    narrow_output,
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
    recompute_modules.Stated,
    binds_processes.Stated,
    launches_ahead.Stated,
    cross_entropy.Stated,
    trains_mtp.Stated,
    swizzled_scales.Stated,
    narrow_output.Stated,
    scaling.Stated,
    fused_accumulation.Stated,
    graphs.Stated,
    dispatcher_library.Stated,
    grouped_launches.Stated,
    dispatcher.Stated,
    fixed_capacity.Stated,
    fused_router.Stated,
    skips_blocks.Stated,
    rotary.Stated,
    fused_latent_rope.Stated,
    update_in_backward.Stated,
    unsharded_gradients.Stated,
    states.Stated,
    reduce_bytes.Stated,
    gradient_bytes.Stated,
    dropout.Stated,
    elementwise.Stated,
    attention.Stated,
):
    """Choices of a launch script; None is the default of the framework's release."""


@record()
class Choices(
    recompute_modules.Chosen,
    binds_processes.Chosen,
    launches_ahead.Chosen,
    cross_entropy.Chosen,
    trains_mtp.Chosen,
    swizzled_scales.Chosen,
    narrow_output.Chosen,
    scaling.Chosen,
    fused_accumulation.Chosen,
    graphs.Chosen,
    dispatcher_library.Chosen,
    grouped_launches.Chosen,
    dispatcher.Chosen,
    fixed_capacity.Chosen,
    fused_router.Chosen,
    skips_blocks.Chosen,
    rotary.Chosen,
    fused_latent_rope.Chosen,
    update_in_backward.Chosen,
    unsharded_gradients.Chosen,
    states.Chosen,
    reduce_bytes.Chosen,
    gradient_bytes.Chosen,
    dropout.Chosen,
    elementwise.Chosen,
    attention.Chosen,
):
    """Every lever with a value: what a release does that states nothing, unless told otherwise."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Choices":
        """The levers among plan fields; other fields are ignored."""
        levers = Levers.model_validate({name: values[name] for name in LEVERS if name in values})
        return cls(**stated(levers))


@record()
class LeverColumns(
    recompute_modules.Column,
    graphs.Column,
    grouped_launches.Column,
    dispatcher.Column,
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
