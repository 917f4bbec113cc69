"""Parameters and FLOPs of a model, read off the op lists of its layers.

Counts are exact for matrices, biases, norms and embeddings. FLOPs are those that publications count: matrix
products, attention and scans, without padding.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.models import LayerKind, Model
from simulator.models.model import CACHED
from simulator.ops.batch import Batch
from simulator.ops.cross import ENCODED_KEYS
from simulator.ops.layer import layers
from simulator.ops.op import Op, Product
from simulator.ops.rank import Implementation, Rank

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


def attention_parameters(model: Model) -> int:
    """Projections of one layer with keys and values, and the norms inside attention."""
    counted = layer_counts(model).items()
    return max((counts.attention for kind, counts in counted if kind.mixer in CACHED), default=0)


def dense_mlp_parameters(model: Model) -> int:
    """One dense layer's MLP; 0 where all layers have experts."""
    return max((counts.mlp for kind, counts in layer_counts(model).items() if not kind.experts), default=0)


def expert_parameters(model: Model) -> int:
    """One routed expert; 0 without experts."""
    experts = model.moe.experts if model.moe else 1
    return max(counts.experts for counts in layer_counts(model).values()) // experts


def model_parameters(model: Model) -> int:
    """All parameters: layers, final norm, embedding and output layer."""
    groups = model.layer_groups
    listed = sum(len(groups[kind]) * counts.parameters for kind, counts in layer_counts(model).items())
    ends = model.norm_width + model.embedding_parameters + model.output_parameters
    return listed + ends + model.other_parameters - _shared_kv(model) + encoder_parameters(model)


def encoder_parameters(model: Model) -> int:
    """Parameters of its encoder without the embedding, the decoder's, and without layers of the model."""
    encoder = model.encoder
    if encoder is None:
        return 0
    if "source" in model.attention_pattern:
        rows = encoder.embedding_parameters - encoder.hidden * encoder.vocabulary
        return encoder.norm_width + rows + encoder.other_parameters
    return model_parameters(encoder) - encoder.hidden * encoder.vocabulary


def _shared_kv(model: Model) -> int:
    """Projections of keys and values, and norms of keys, that the last layers do not have."""
    total = 0
    for layer in range(model.layers - model.shared_kv_layers, model.layers):
        layer_model = model.of_kind(LayerKind(model.attention_kind(layer)))
        values = 0 if layer_model.shared_values else layer_model.v_head_dim
        total += (
            model.hidden * layer_model.kv_heads * (layer_model.head_dim + values)
            + layer_model.head_dim * layer_model.qk_norm
        )
    return total


def active_parameters(model: Model) -> int:
    """Parameters that compute one token: all but those of routed experts that the token does not visit."""
    if model.moe is None:
        return model_parameters(model)
    idle = (model.moe.experts - model.moe.top_k) * expert_parameters(model)
    return model_parameters(model) - model.moe_layers * idle


def matmul_flops_per_token(model: Model) -> int:
    """Forward FLOPs of one token in weight matrices, the output layer included."""
    groups = model.layer_groups
    listed = sum(len(groups[kind]) * counts.flops for kind, counts in layer_counts(model).items())
    return listed + model.output_flops


def attention_flops_per_token(model: Model, seq_len: ArrayLike, causal: bool = False) -> NDArray[np.float64]:
    """Forward FLOPs of one token in the products of queries, keys and values, over all layers.

    Publications count s keys per token, or s/2 with a causal mask; kernels compute (s+1)/2, the mean over the
    tokens of 1 to s keys. Both follow from the op list: the keys of the last token, or the kernel's sum
    without half of the last token's keys (the trapezoidal rule).

    Args:
        model: the architecture.
        seq_len: tokens of a sequence; any shape.
        causal: count only the keys that a token may see.

    Returns:
        FLOPs, in the shape of ``seq_len``.
    """
    lengths = np.asarray(seq_len, dtype=np.float64)
    counted = _attention_of(model.model_dump_json(), tuple(lengths.ravel().tolist()), causal)
    return np.reshape(counted, lengths.shape)


def flops_per_token(
    model: Model, seq_len: ArrayLike, causal: bool = False, source: float | None = None
) -> NDArray[np.float64]:
    """Forward model FLOPs per token of a sequence; a training step needs three times as many.

    Args:
        model: the architecture.
        seq_len: tokens of a sequence; any shape.
        causal: count only the keys that a token may see.
        source: tokens that the encoder reads, of a model whose layers hold it; they count with the decoder's.

    Returns:
        FLOPs, in the shape of ``seq_len``.
    """
    if source is not None:
        return _stacked_flops(model, np.asarray(seq_len, dtype=np.float64), causal, source)
    return matmul_flops_per_token(model) + attention_flops_per_token(model, seq_len, causal)


def _stacked_flops(
    model: Model, length: NDArray[np.float64], causal: bool, source: float
) -> NDArray[np.float64]:
    """``flops_per_token`` of a model with its encoder's layers, by the tokens of the decoder."""
    how, kinds = Implementation(absorbs=False), tuple(model.layer_groups)
    decoder = Batch.training(1, length, causal, source)
    encoder = Batch.training(1, source, causal=False)
    total = float(model.output_flops) * length
    for batch in (decoder, encoder):
        for kind, ops in zip(kinds, layers(Rank(model, batch, how=how), kinds), strict=True):
            if (kind.mixer == "source") is (batch is encoder):
                members = len(model.layer_groups[kind])
                total = total + members * sum((np.asarray(op.flops) for op in ops), np.zeros(()))
    return total / length


@lru_cache(maxsize=256)
def _counts_of(definition: str) -> dict[LayerKind, LayerCounts]:
    model = Model.model_validate_json(definition)
    kinds = tuple(model.layer_groups)
    listed = layers(Rank(model, Batch.training(1, 1, source=1 if model.encoder else None)), kinds)
    return {kind: _counted(ops) for kind, ops in zip(kinds, listed, strict=True)}


def _counted(ops: list[Op]) -> LayerCounts:
    counts = dict.fromkeys(LayerCounts._fields, 0.0)
    for op in ops:
        counts[COUNTED_AS.get(op.part, "attention")] += float(np.sum(op.parameters))
        if isinstance(op, Product) and op.name != ENCODED_KEYS:
            counts["flops"] += float(np.sum(op.flops))
    return LayerCounts(**{name: round(count) for name, count in counts.items()})


@lru_cache(maxsize=256)
def _attention_of(definition: str, lengths: tuple[float, ...], causal: bool) -> NDArray[np.float64]:
    """``attention_flops_per_token``, once for each model and its lengths; shape (lengths,)."""
    model, length = Model.model_validate_json(definition), np.array(lengths)
    sequence, last = (
        _core_flops(model, Batch.training(1, length)),
        _core_flops(model, Batch.decode(1, length)),
    )
    counted = np.zeros(len(lengths))
    for kind, members in model.layer_groups.items():
        if kind.mixer in CACHED and not causal:
            flops = last[kind]
        elif kind.mixer in CACHED:
            flops = (sequence[kind] - last[kind] / 2) / length
        else:
            flops = sequence[kind] / length
        counted = counted + len(members) * flops
    return counted


def _core_flops(model: Model, batch: Batch) -> dict[LayerKind, NDArray[np.float64]]:
    """FLOPs of a batch in attention and scans of one layer of each kind."""
    kinds = tuple(model.layer_groups)
    # Publications count heads of MLA after the up projections.
    listed = layers(Rank(model, batch, how=Implementation(absorbs=False)), kinds)
    zero = np.zeros(())
    return {
        kind: sum((np.asarray(op.flops) for op in ops if op.part == "core"), zero)
        for kind, ops in zip(kinds, listed, strict=True)
    }
