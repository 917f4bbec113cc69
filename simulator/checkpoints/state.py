"""The bytes of a checkpoint: what the memory model holds, and which device writes which shard."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from core.records import record
from simulator.layout.parameters import Parameters
from simulator.layout.stages import Stages
from simulator.plan import PIPELINE_INSIDE_DATA, Plans
from simulator.setting import Setting
from simulator.training.memory import state_bytes
from simulator.training.sharding import Sharding, StateGroups

SAVED: tuple[Literal["parameters", "optimizer"], ...] = ("parameters", "optimizer")
"""Parts of the memory model's state that a checkpoint holds; gradients are not saved."""


@record()
class SavedState:
    """Bytes of the saved state of each plan; arrays of shape (plans,).

    Attributes:
        total: distinct bytes of the whole job.
        device: bytes that the fullest device holds, and reads after a restart.
        all_devices: bytes that all devices hold, copies included.
        writer: bytes of the fullest writing device where the first of several copies writes.
        node: bytes of the fullest node where the first of several copies writes.
        spread_device, spread_node: the same where all copies share the writing evenly.
        bytes_per_parameter: ``total`` over the model's parameters.
    """

    total: np.ndarray
    device: np.ndarray
    all_devices: np.ndarray
    writer: np.ndarray
    node: np.ndarray
    spread_device: np.ndarray
    spread_node: np.ndarray
    bytes_per_parameter: np.ndarray

    @classmethod
    def of(cls, setting: Setting, plans: Plans, stages: Stages, counts: Parameters) -> SavedState:
        """Read the bytes off the memory model's state and the plan's sharding.

        The dense and the expert state are asked for one after the other, since their copies differ.
        """
        sharding, width = Sharding(setting, plans), setting.cluster.devices_per_node
        nothing = np.zeros_like(counts.dense)
        number = np.where(stages.present, np.maximum(stages.count, 1), 0)
        ranks = plans.tensor * plans.context * plans.data
        total = np.zeros(len(plans))
        device, share, alone, always = np.zeros((4, *counts.dense.shape))
        sharded = {"parameters": sharding.parameters, "optimizer": sharding.optimizer}
        for family, only in enumerate((replace(counts, experts=nothing), replace(counts, dense=nothing))):
            parts = state_bytes(setting, sharding, only)
            for name in SAVED:
                copies = _copies(sharding.groups(name)[family], sharded[name])
                part = np.where(stages.present, parts[name], 0.0)
                if name == "parameters":
                    part = part * _own_share(sharding, family)
                total += (number * part * ranks / copies).sum(axis=0)
                device += part
                share += part / copies
                alone += np.where(copies > 1, part, 0.0)
                always += np.where(copies > 1, 0.0, part)
        inside = np.where(plans.rank_order == PIPELINE_INSIDE_DATA, plans.pipeline, 1)
        writers = np.minimum(plans.tensor * inside, width)
        in_use = np.minimum(width, setting.cluster.devices)
        experts = counts.experts * plans.expert * plans.expert_tensor
        distinct = (number * (counts.dense * plans.tensor + experts)).sum(axis=0)
        return cls(
            total=total,
            device=device.max(axis=0),
            all_devices=(number * device).sum(axis=0) * ranks,
            writer=(alone + always).max(axis=0),
            node=(alone * writers + always * in_use).max(axis=0),
            spread_device=share.max(axis=0),
            spread_node=share.max(axis=0) * in_use,
            bytes_per_parameter=total / distinct,
        )


def _own_share(sharding: Sharding, number: int) -> np.ndarray:
    """Share of a device's parameters that are its own shard: further copies near by are not saved."""
    share = 1 / sharding.pieces("parameters", experts=bool(number))
    further = sharding.copies / sharding.group("parameters", bool(number), copy=True).shard
    return share / (share + further)


def _copies(groups: StateGroups, sharded: np.ndarray) -> np.ndarray:
    """Ranks that hold the same bytes of a state."""
    return groups.shard * groups.replicas / np.where(sharded, groups.shard, 1)
