"""State on the host as options of Megatron (Core's hybrid optimizer) and torchtitan (FSDP2's CPU offload)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from meshwright.exporters.table import Options
from simulator.plan import Plan
from simulator.state.place import STATE_CLASSES

EXPRESSED = ("place", "update")
"""State fields that the options below express, in part."""
MEGATRON: Mapping[str, str] = MappingProxyType(
    {
        "offload": "--optimizer-cpu-offload",
        "share": "--optimizer-offload-fraction",
        "beside": "--overlap-cpu-optimizer-d2h-h2d",
        "precision": "--use-precision-aware-optimizer",
    }
)
"""Options of Megatron-LM 0.19 (megatron/training/arguments.py)."""
BRIDGE: Mapping[str, str] = MappingProxyType(
    {
        "offload": "optimizer.optimizer_cpu_offload",
        "share": "optimizer.optimizer_offload_fraction",
        "beside": "optimizer.overlap_cpu_optimizer_d2h_h2d",
        "precision": "optimizer.use_precision_aware_optimizer",
    }
)
"""Fields of Megatron Core's OptimizerConfig."""
TITAN = "training.enable_cpu_offload"


def megatron_offload(plan: Plan, names: Mapping[str, str]) -> tuple[Options, list[str]]:
    """Options of a plan's offloaded optimizer, and what of it Megatron lacks."""
    place, update = plan.place, plan.update
    gaps = [
        f"plan.place.{kind}: Megatron's hybrid optimizer leaves {kind} on the device"
        for kind in STATE_CLASSES
        if place is not None and kind != "optimizer" and place.of(kind).off_device
    ]
    shares = place.optimizer if place is not None else None
    if shares is None or not shares.off_device:
        return {}, gaps
    if shares.nvme or shares.file_system:
        gaps.append("plan.place.optimizer: Megatron offloads to the host only")
    if update is None or update.on != "host":
        gaps.append("plan.update.on = device: Megatron's CPUs update what lies on the host")
        return {}, gaps
    for name in ("delayed", "beside_backward", "important", "share_on_device"):
        if getattr(update, name):
            gaps.append(f"plan.update.{name}: Megatron's CPUs update behind the backward pass")
    if not update.master_on_device:
        gaps.append("plan.update.master_on_device = false: Megatron keeps the 32-bit weights on the device")
    options: Options = {names["offload"]: True, names["share"]: round(shares.off_device, 3)}
    options[names["precision"]] = True
    if update.pipelined:
        options[names["beside"]] = True
    return options, gaps


def titan_offload(plan: Plan) -> tuple[Options, list[str]]:
    """Options of a plan whose parameters, gradients and optimizer all lie on the host, as FSDP2 has it."""
    place = plan.place
    if place is None or not any(place.of(kind).off_device for kind in STATE_CLASSES):
        return {}, []
    all_on_host = all(place.of(kind).host == 1.0 for kind in ("parameters", "gradients", "optimizer"))
    on_host = plan.update is not None and plan.update.on == "host"
    if not (all_on_host and on_host and plan.zero == 3):
        return {}, ["plan.place: FSDP2 keeps parameters, gradients and optimizer on the host, or none"]
    gaps = []
    if place.activations.off_device:
        gaps.append("plan.place.activations: no option of this launcher expresses it")
    return {TITAN: True}, gaps
