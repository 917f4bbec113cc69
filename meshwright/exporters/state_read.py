"""State fields of a plan read back from options of launchers: offload, coded wires, a second copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import InputError
from meshwright.exporters.deepspeed_state import ZERO
from meshwright.exporters.host_state import TITAN
from meshwright.exporters.table import Facts, Options, same

TAKEN = "derived.state_options"
"""Fact that names the options read here."""
DEVICES = {"cpu": "host", "nvme": "nvme"}
"""Tiers by DeepSpeed's names of devices."""
EVERYTHING = ("parameters", "gradients", "optimizer")


def megatron_state(options: Options, names: Mapping[str, str], where: str) -> Facts:
    """Facts of Megatron Core's hybrid optimizer: moments on the host, whose CPUs update.

    Raises:
        InputError: a fraction that is not a number from 0 to 1.
    """
    if not _on(options.get(names["offload"])):
        return {}
    share = _share(options.get(names["share"], 1.0), f"{where}: {names['share']}")
    update = {"on": "host", "master_on_device": True, "pipelined": _on(options.get(names["beside"]))}
    taken = [name for name in names.values() if name in options]
    return {"plan.place": {"optimizer": {"host": share}}, "plan.update": update, TAKEN: taken}


def titan_state(options: Options) -> Facts:
    """Facts of FSDP2's CPU offload: parameters, gradients and optimizer on the host."""
    if not _on(options.get(TITAN)):
        return {}
    place = {kind: {"host": 1.0} for kind in EVERYTHING}
    return {"plan.place": place, "plan.update": {"on": "host"}, TAKEN: [TITAN]}


def deepspeed_state(options: Options, where: str) -> Facts:
    """Facts of ZeRO's offload and of ZeRO++.

    Gradients go to the optimizer's host buffers, and kernels wait for them (DeepSpeed, stage3.py).

    Raises:
        InputError: a device that is none of a node's tiers, or a ratio that is not a number from 0 to 1.
    """
    place: dict[str, Any] = {}
    taken: list[str] = []
    for kind, name in (("optimizer", "offload_optimizer"), ("parameters", "offload_param")):
        key = f"{ZERO}.{name}"
        device = str(options.get(f"{key}.device", "none"))
        if device == "none":
            continue
        if device not in DEVICES:
            problem = f"a device of cpu, nvme or none is needed, found {device!r}"
            raise InputError(problem, f"{where}: {key}.device")
        share = _share(options.get(f"{key}.ratio", 1.0), f"{where}: {key}.ratio")
        place[kind] = {DEVICES[device]: share}
        taken += [f"{key}.{last}" for last in ("device", "pin_memory", "ratio")]
    facts: Facts = {}
    if "optimizer" in place:
        place["optimizer"]["unit"] = "sub-group"
        place["gradients"] = {"host": 1.0, "prefetch": 0}
        facts["plan.update"] = {"on": "host"}
    if place:
        facts["plan.place"] = place
    wire: dict[str, Any] = {}
    for name, coded in (("weights", {"gather": "int8"}), ("gradients", {"reduce": "int4", "reduce_hops": 2})):
        key = f"{ZERO}.zero_quantized_{name}"
        if _on(options.get(key)):
            wire |= coded
            taken.append(key)
    if wire:
        facts["plan.wire"] = wire
    key = f"{ZERO}.zero_hpz_partition_size"
    if not same(options.get(key, 1), 1):
        facts["plan.shard"] = {"copy_parameters": "node"}
        taken.append(key)
    return {**facts, TAKEN: taken} if taken else {}


def _on(value: object) -> bool:
    return same(value, True)


def _share(value: object, where: str) -> float:
    try:
        share = float(str(value))
    except ValueError:
        raise InputError(f"a number from 0 to 1 is needed, found {value!r}", where) from None
    if not 0 <= share <= 1:
        raise InputError(f"a number from 0 to 1 is needed, found {share:g}", where)
    return share
