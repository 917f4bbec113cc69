"""State fields of a plan as keys of DeepSpeed's configuration: offload, ZeRO++."""

from __future__ import annotations

from hwmodels.cluster import Cluster
from meshwright.exporters.table import Options
from simulator.plan import Plan
from simulator.state.levels import level_devices
from simulator.state.place import Shares, Tiers

ZERO = "zero_optimization"
EXPRESSED = ("place", "update", "wire", "shard")
"""State fields that the keys below express, in part."""


def state_options(plan: Plan, cluster: Cluster) -> tuple[Options, list[str]]:
    """Keys of a plan's state fields, and what of them DeepSpeed lacks."""
    options: Options = {}
    gaps: list[str] = []
    if plan.place is not None:
        _places(plan.place, options, gaps)
    if plan.update is not None:
        update = plan.update
        for name in ("delayed", "beside_backward", "important"):
            if getattr(update, name):
                gaps.append(f"plan.update.{name}: ZeRO's offload updates behind the backward pass")
        if update.share_on_device:
            gaps.append("plan.update.share_on_device: Twin-Flow's ratio keeps a share on the device instead")
    if plan.wire is not None:
        _wires(plan, options, gaps)
    if plan.shard is not None:
        if plan.shard.copy_parameters:
            options[f"{ZERO}.zero_hpz_partition_size"] = level_devices(cluster, plan.shard.copy_parameters)
        if any((plan.shard.parameters, plan.shard.gradients, plan.shard.optimizer)):
            gaps.append("plan.shard: DeepSpeed shards all states over one group of ranks")
    return options, gaps


def _places(place: Tiers, options: Options, gaps: list[str]) -> None:
    for name, key in (("optimizer", "offload_optimizer"), ("parameters", "offload_param")):
        shares: Shares = getattr(place, name)
        off = shares.off_device
        if not off:
            continue
        nvme = shares.nvme not in (0.0, "auto")
        options[f"{ZERO}.{key}.device"] = "nvme" if nvme else "cpu"
        options[f"{ZERO}.{key}.pin_memory"] = True
        if name == "optimizer" and off < 1:
            options[f"{ZERO}.{key}.ratio"] = round(off, 3)
        elif off < 1:
            gaps.append(f"plan.place.{name} = {off:g}: DeepSpeed offloads all parameters or none")
        if shares.file_system or (nvme and shares.host not in (0.0, "auto")):
            gaps.append(f"plan.place.{name}: DeepSpeed offloads to one tier")
    if place.activations.off_device:
        gaps.append("plan.place.activations: the model's code checkpoints to the CPU (cpu_checkpointing)")


def _wires(plan: Plan, options: Options, gaps: list[str]) -> None:
    wire = plan.wire
    if wire is None:
        return
    if wire.send:
        gaps.append(f"plan.wire.send = {wire.send}: DeepSpeed sends boundary tensors as they are computed")
    if wire.gather == "int8":
        options[f"{ZERO}.zero_quantized_weights"] = True
    elif wire.gather:
        gaps.append(f"plan.wire.gather = {wire.gather}: DeepSpeed gathers in 16 bits or int8")
    if wire.reduce == "int4" and wire.reduce_hops == 2:
        options[f"{ZERO}.zero_quantized_gradients"] = True
    elif wire.reduce or wire.reduce_hops > 1:
        gaps.append("plan.wire.reduce: DeepSpeed reduces in 16 bits, or int4 in two hops")
