"""A vision tower in a training step: on the first stage, before the layers of the language model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.models.towers.pictures import Pictures, pictures_of
from simulator.ops import Op, Shard
from simulator.ops.tower import tower_ops
from simulator.plan import Plans
from simulator.setting import Setting

FROZEN = "frozen"
"""Part of the ops that have no backward pass: nothing before them is trained."""
PREFIX = "tower."


def is_tower(op: Op) -> bool:
    """Whether an op is one of the tower."""
    return op.name.startswith(PREFIX)


def step_pictures(setting: Setting) -> Pictures | None:
    """The pictures of a sequence; None without any."""
    return pictures_of(setting.model, setting.training.images, "workload.images")


def step_tower(setting: Setting, plans: Plans) -> list[Op]:
    """Forward ops of the tower for one micro batch; none without images.

    Its layers are divided by tensor-parallel ranks. Context-parallel ranks encode all pictures each
    (assumed).
    """
    pictures = step_pictures(setting)
    if pictures is None:
        return []
    part = "end" if setting.training.tower == "trained" else FROZEN
    sequences = np.asarray(setting.sequences(plans)[0], dtype=np.float64)
    shard, wide = Shard(tensor=plans.tensor), setting.core_dtype
    formats = replace(setting.formats, linear=wide, core=wide)
    ops = []
    for number, (count, shape) in enumerate(pictures.groups):
        listed = tower_ops(pictures.tower, shape, sequences * count, shard, formats, setting.implementation)
        shared = {"parameters": 0.0} if number else {}
        ops += [op.changed(name=f"{PREFIX}{number}.{op.name}", part=part, **shared) for op in listed]
    return ops


def tower_flops(setting: Setting) -> float:
    """FLOPs of the tower for the pictures of one sequence, forward and, where it is trained, backward."""
    pictures = step_pictures(setting)
    if pictures is None:
        return 0.0
    forward = sum(
        float(np.sum(op.flops))
        for count, shape in pictures.groups
        for op in tower_ops(pictures.tower, shape, float(count))
    )
    return forward * (3.0 if setting.training.tower == "trained" else 1.0)
