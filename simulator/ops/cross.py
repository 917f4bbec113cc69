"""Attention of a decoder's layer to the output of its encoder."""

from __future__ import annotations

import numpy as np

from simulator.ops.attention import core_over
from simulator.ops.batch import Segment
from simulator.ops.build import linear
from simulator.ops.op import Decode, Op
from simulator.ops.rank import Rank

ENCODED_KEYS = "cross_keys"
"""Name of the product of the encoder's output into keys and values."""


def cross_attention(rank: Rank) -> list[Op]:
    """Queries, the core over the encoder's keys and the output projection; and keys, where a batch has some.

    The keys of decodes are those of self-attention and of the encoder together, which the first core reads: a
    second kernel starts here, over one key.
    """
    model, batch = rank.model, rank.batch
    width = rank.heads * model.head_dim
    shared = {"part": "projections", "bias": model.qkv_bias}
    ops = linear(rank, "cross_query", "column", width, model.hidden, **shared)
    if batch.encoded is not None:
        encoded = np.asarray(batch.encoded, dtype=np.float64)
        ops += encoded_keys(rank, encoded)
        for part in batch.segments:
            keys = encoded / np.asarray(part.sequences, dtype=np.float64)
            seen = Segment(part.sequences, part.queries, keys, causal=False)
            ops += core_over(rank, seen, "cross_attention")
    ops += [
        Decode(
            name="cross_attention",
            part="core",
            module="attention",
            sequences=segment.tokens,
            keys=1.0,
            heads=rank.heads,
            kv_heads=rank.kv_heads,
            head_dim=model.head_dim,
            v_head_dim=model.v_head_dim,
            dtype=rank.formats.core,
            kv_dtype=rank.formats.kv,
        )
        for segment in batch.segments
        if segment.phase == "decode" and rank.how.appends
    ]
    values = rank.heads * model.v_head_dim
    return [*ops, *linear(rank, "cross_output", "row", model.hidden, values, part="projections")]


def encoded_keys(rank: Rank, tokens: np.ndarray) -> list[Op]:
    """The product of the encoder's output into keys and values of one layer.

    Its results are kept for the backward pass; its input is one tensor for all layers.

    Args:
        rank: of the decoder.
        tokens: of the encoder's output, shape (cases,).
    """
    model = rank.model
    inputs = model.encoder.hidden if model.encoder else model.hidden
    width = rank.kv_heads * (model.head_dim + model.v_head_dim)
    sizes = {"tokens": tokens, "keeps": tokens * width, "bias": model.qkv_bias}
    return linear(rank, ENCODED_KEYS, "column", width, inputs, part="projections", **sizes)
