"""Sizes of adapters on a replica."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.models import Model
from simulator.serving.question.adapters import Adapters

BYTES = 2.0
"""Of a parameter of an adapter: they are kept in 16 bits."""


@dataclass(frozen=True)
class AdapterShapes:
    """What one adapter adds to a model.

    Attributes:
        layers: of the model.
        products: of one layer that have an adapter.
        widths: input and output features of those products of one layer, added up.
        rank: of the adapter.
        weight_bytes: of the base model over the replica.
    """

    layers: int
    products: int
    widths: float
    rank: int
    weight_bytes: float = 0.0

    @classmethod
    def of(cls, model: Model, adapters: Adapters) -> AdapterShapes:
        """The shapes of adapters on a model; experts have none, as in vLLM 0.11."""
        hidden, heads = model.hidden, model.heads * model.head_dim
        kv = model.kv_heads * model.head_dim
        pairs = [(hidden, heads), (hidden, kv), (hidden, kv), (heads, hidden)]
        if adapters.products == "all" and model.moe is None:
            ups = 2 if model.activation in ("swiglu", "geglu") else 1
            pairs += [(hidden, model.feed_forward)] * ups + [(model.feed_forward, hidden)]
        return cls(model.layers, len(pairs), float(sum(map(sum, pairs))), adapters.rank)

    @property
    def bytes(self) -> float:
        """Of one adapter: two matrices a product."""
        return BYTES * self.rank * self.widths * self.layers
