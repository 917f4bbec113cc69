"""Memory of a vision tower beside the first stage: weights that nobody trains, and activations."""

from __future__ import annotations

import numpy as np

from simulator.layout.model_ops import ModelOps
from simulator.layout.stages import FIRST
from simulator.layout.tower import is_tower, step_pictures
from simulator.plan import FULL, Plans
from simulator.setting import Setting


def tower_memory(
    setting: Setting, plans: Plans, ops: ModelOps, flight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of frozen weights, and of what the tower keeps for its backward pass or needs while it runs.

    A trained tower keeps its activations as layers do; under full recomputation the inputs of its layers.
    Its weights are parameters of the stage. Frozen weights lie on every rank, in the width of activations.

    Args:
        setting: with images.
        plans: the plans.
        ops: of the model.
        flight: micro batches in flight, shape (classes, plans).

    Returns:
        Weights and activations, shape (classes, plans).
    """
    weights, activations = np.zeros(flight.shape), np.zeros(flight.shape)
    pictures = step_pictures(setting)
    if pictures is None:
        return weights, activations

    def total(field: str) -> np.ndarray:
        sums = [sum(getattr(op, field) for op in part.embedding if is_tower(op)) for part in ops.by_levers]
        return ops.gathered(sums)[ops.index]

    between = total("saved")
    layer = between / pictures.tower.layers
    patches = sum(count * shape.sequences * shape.rows * shape.columns for count, shape in pictures.groups)
    inputs = plans.micro_batch * patches * pictures.tower.hidden * pictures.tower.layers * setting.width
    if setting.training.tower == "frozen":
        weights[FIRST] = setting.width * total("parameters")
        activations[FIRST] = layer
    else:
        activations[FIRST] = flight[FIRST] * np.where(plans.recompute == FULL, inputs, between) + layer
    return weights, activations
