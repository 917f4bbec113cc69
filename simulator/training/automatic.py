"""Shares that a plan leaves to the model: as much as copies hide, or as little as must leave the device."""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

import numpy as np

from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.state.place import STATE_CLASSES, Tiers
from simulator.training.analytic import stage_times
from simulator.training.components import components
from simulator.training.memory import memory
from simulator.training.sharding import Sharding
from simulator.training.tiers import Offload, kept_on_stages

STEP = 1e-3
"""Multiple to which shares are rounded: activations down, the optimizer's state up."""


def settled(setting: Setting, plan: Plan) -> Plan:
    """A plan whose automatic shares are numbers.

    Activations: the largest share whose copies take no longer than the kernels of their pass (Wan et al.
    2025, PipeOffload). The optimizer's state, then parameters: the least that lets the fullest device hold
    the rest.
    """
    place = plan.place
    if place is None or not any(place.of(kind).automatic for kind in STATE_CLASSES):
        return plan
    tier = {kind: "nvme" if place.of(kind).nvme == "auto" else "host" for kind in STATE_CLASSES}
    automatic = [kind for kind in STATE_CLASSES if place.of(kind).automatic]
    plan = _with(plan, {kind: (tier[kind], 0.0) for kind in automatic})
    if "activations" in automatic:
        plan = _with(
            plan, {"activations": (tier["activations"], _hidden(setting, plan, tier["activations"]))}
        )
    for kind in ("optimizer", "parameters"):
        if kind in automatic:
            plan = _with(plan, {kind: (tier[kind], _excess(setting, plan, kind, tier[kind]))})
    return plan


def _with(plan: Plan, shares: dict[str, tuple[str, float]]) -> Plan:
    place = plan.place or Tiers.model_validate({})
    changed = {
        kind: getattr(place, kind).model_copy(update={tier: share}) for kind, (tier, share) in shares.items()
    }
    return plan.model_copy(update={"place": place.model_copy(update=changed)})


def _hidden(setting: Setting, plan: Plan, tier: str) -> float:
    """Share of the activations whose copies the passes of every stage hide."""
    plans = Plans.of(_with(plan, {"activations": (tier, 1.0)}))
    stages = Stages.of(setting, plans)
    counts = parameters(setting, plans, stages)
    activations = kept_on_stages(setting, plans, stages, counts)
    none = np.zeros(activations.shape)
    (out, _), (_, back) = Offload(Sharding(setting, plans)).copies(activations, none, stages.total)
    bare = Plans.of(plan)
    times = stage_times(setting, bare, stages, counts, components(bare, stages, counts.ops))
    busy = np.where(stages.present & (activations > 0), 1.0, 0.0) > 0
    # In a pipeline copies in either direction run beside both passes (Offload.passes).
    both = times.forward + times.backward
    windows = (both, both) if plan.pipeline > 1 else (times.forward, times.backward)
    ratios = [
        float((window[busy] / np.maximum(copy[busy], 1e-12)).min())
        for window, copy in zip(windows, (out.beside, back.beside), strict=True)
        if busy.any()
    ]
    share = min([1.0, *ratios])
    return float(np.floor(share / STEP) * STEP)


def _excess(setting: Setting, plan: Plan, kind: Literal["parameters", "optimizer"], tier: str) -> float:
    """The least share of a class of state, in steps, without which the rest fits the fullest device."""

    def fits(steps: int) -> bool:
        plans = Plans.of(_with(plan, {kind: (tier, steps * STEP)}))
        stages = Stages.of(setting, plans)
        usage = memory(setting, plans, stages, parameters(setting, plans, stages))
        return bool(usage.peak[0] <= setting.cluster.device.memory_bytes)

    return bisect_left(range(round(1 / STEP)), True, key=fits) * STEP
