"""Parameters and matrix FLOPs of a model, read off the op lists of its layers."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simulator.models import LayerKind, Model
from simulator.ops.batch import Batch
from simulator.ops.layer import layers
from simulator.ops.op import Op, Product
from simulator.ops.rank import Rank

COUNTED_AS = {"mlp": "mlp", "routed": "experts", "around": "norms"}
"""Counts of a layer by the part of their ops; attention has all other parts."""


class LayerCounts(NamedTuple):
    """Parameters of one layer on one device, and the forward FLOPs of one token in its matrices."""

    attention: int = 0
    """Projections, and the norms inside attention."""
    mlp: int = 0
    """Dense MLP, or router and shared experts."""
    experts: int = 0
    """All routed experts."""
    norms: int = 0
    """Norms outside attention."""
    flops: int = 0

    @property
    def parameters(self) -> int:
        """All parameters of the layer."""
        return self.attention + self.mlp + self.experts + self.norms


def layer_counts(model: Model) -> dict[LayerKind, LayerCounts]:
    """Count one layer of each kind that a model has."""
    return _counts_of(model.model_dump_json())


@lru_cache(maxsize=256)
def _counts_of(definition: str) -> dict[LayerKind, LayerCounts]:
    model = Model.model_validate_json(definition)
    kinds = tuple(model.layer_groups)
    listed = layers(Rank(model, Batch.training(1, 1)), kinds)
    return {kind: _counted(ops) for kind, ops in zip(kinds, listed, strict=True)}


def _counted(ops: list[Op]) -> LayerCounts:
    counts = dict.fromkeys(LayerCounts._fields, 0.0)
    for op in ops:
        counts[COUNTED_AS.get(op.part, "attention")] += float(np.sum(op.parameters))
        if isinstance(op, Product):
            counts["flops"] += float(np.sum(op.flops))
    return LayerCounts(**{name: round(count) for name, count in counts.items()})
