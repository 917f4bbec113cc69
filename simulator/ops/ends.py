"""Both ends of the model: the input embedding; the final norm, the output layer and the loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simulator.models import Model
from simulator.ops import elementwise as passes
from simulator.ops.build import enter_tensor, kernel, leave_tensor, linear
from simulator.ops.op import Collective, MemoryBound, Op, Product
from simulator.ops.rank import Array, Rank


def padded_vocabulary(model: Model, tensor: ArrayLike) -> Array:
    """Rows of the embedding, padded to a multiple of 128 on each tensor-parallel rank (Megatron-LM)."""
    unit = 128 * np.asarray(tensor)
    return np.ceil(model.vocabulary / unit) * unit


def _of_ends(rank: Rank) -> Rank:
    """The rank at the ends of the model: without tensor parallelism where each rank holds them whole."""
    if not rank.how.whole_ends:
        return rank
    return replace(rank, shard=replace(rank.shard, tensor=1.0, sequence_parallel=False))


def _one_hot(rank: Rank, rows: Array) -> Iterator[Op]:
    """Look-up of tokens by a product with the table; the gradient of the table is one, tokens have none.

    The one-hot rows are written before each product, which reads them (Praxis, embedding_softmax.py:
    emb_lookup with lookup_style matmul).
    """
    written = rank.width * rank.tokens * rows
    yield MemoryBound(name="one_hot", kind="embedding", part="end", bytes=written, backward_bytes=written)
    hidden, dtype = rank.model.hidden, rank.formats.core
    yield Product(name="lookup", part="end", m=rank.tokens, n=hidden, k=rows, dtype=dtype, frozen_input=True)


def embedding(rank: Rank) -> list[Op]:
    """Look up one row per token; backward adds rows into a dense gradient.

    Torch clears a gradient of the table's size for every micro batch (embedding_dense_backward), and adds all
    of it to the buffer, where gradients accumulate in a separate one (Megatron Core,
    distributed_data_parallel.py: main_grad.add_). XLA may multiply one-hot rows with the table instead.
    """
    rank = _of_ends(rank)
    model, size = rank.model, rank.tokens * rank.model.hidden * rank.width
    sources = 2 if model.position == "learned" else 1
    table = padded_vocabulary(model, rank.tensor) / rank.tensor * model.table_width
    added = rank.how.accumulated_table_bytes
    cleared = MemoryBound(
        name="embedding.clear",
        kind="embedding",
        variant="elementwise",
        part="end",
        bytes=table * (rank.width + added),
        launches=2 if added else 1,
        gradient="input",
    )
    lookup = MemoryBound(
        name="embedding",
        kind="embedding",
        part="end",
        bytes=(sources + 1) * size,
        launches=1 + sources,
        backward_bytes=3 * size,
        backward_launches=2,
        parameters=table + (model.max_sequence * model.table_width if model.position == "learned" else 0.0),
        only_backward=(cleared,),
    )
    dropout = passes.MemoryPasses(passes.DROPOUT, passes.DROPOUT)
    dropped = kernel(rank, "dropout", "elementwise", dropout, rank.tokens * model.hidden, part="end")
    return [
        *(_one_hot(rank, table / model.table_width) if rank.how.one_hot_embedding else ()),
        lookup,
        *([dropped] if rank.how.dropout else []),
        *leave_tensor(rank, "embedding_output", "end", rank.width),
    ]


def head(rank: Rank) -> list[Op]:
    """Final norm, output layer and, in training, the loss over the vocabulary shard of one rank.

    Only tokens that are sampled pass the output layer; in training, all tokens.
    """
    rank = _of_ends(rank)
    model = rank.model
    tokens = rank.batch.logit_rows / rank.context
    rows = padded_vocabulary(model, rank.tensor) / rank.tensor
    norm = kernel(
        rank,
        "final_norm",
        "norm",
        passes.NORM,
        rank.tokens * model.hidden,
        part="end",
        variant=passes.VARIANTS[model.norm],
        parameters=float(model.norm_width),
    )
    logits = linear(
        rank,
        "output_layer",
        "column",
        rows,
        model.table_width,
        part="end",
        tokens=tokens,
        dtype=rank.formats.output or rank.formats.core,
        bias=False,
    )
    if rank.how.loss == "log-probabilities":
        *casts, product = logits
        again = product.changed(name="logits_again", parameters=0.0, saved=0.0, gradient="input")
        again = again.changed(only_backward=())
        logits = [*casts, product.changed(only_backward=(*product.only_backward, again))]
    if rank.how.loss and rank.how.gathers_by_product:
        end = [*_gather_logits(rank, tokens, rows), *_loss(rank, tokens, rows * rank.tensor)]
    else:
        end = _loss(rank, tokens, rows) if rank.how.loss else _gather_logits(rank, tokens, rows)
    return [norm, *enter_tensor(rank, "output_layer_input", "end", rank.width), *logits, *end]


def corrected_share(rank: Rank, early: bool) -> list[Op]:
    """What a share of a split output layer adds where no rank waits for the sums over all of them.

    Args:
        rank: the batch and the share.
        early: the product of the input gradient comes before the correction.
    """
    count = passes.EARLY_SOFTMAX if early else passes.CORRECTED_SOFTMAX
    logits = rank.tokens * padded_vocabulary(rank.model, rank.tensor) / rank.tensor
    listed = [
        kernel(rank, "softmax_share", "cross_entropy", count, logits, part="end"),
        kernel(rank, "wide_input", "copy", passes.WIDE_INPUT, rank.tokens * rank.model.hidden, part="end"),
    ]
    two = 2.0 / rank.width  # counted in 2 bytes, whatever the width of activations
    return [op.changed(bytes=op.bytes * two, backward_bytes=op.backward_bytes * two) for op in listed]


def further_prediction(rank: Rank) -> list[Op]:
    """The projection of hidden state and next embedding to one width (multi-token prediction; DeepSeek-V3,
    section 2.2)."""
    hidden = rank.model.hidden
    return linear(
        rank, "prediction_projection", "column", hidden / rank.tensor, 2 * hidden, part="end", bias=False
    )


def _loss(rank: Rank, tokens: Array, rows: Array) -> Iterator[Op]:
    """Cross entropy; the maximum, the sum of exponentials and the target's logit are each reduced."""
    casts = rank.how.loss in ("torch", "torch-held", "chunked") and rank.width == 2
    counts = [passes.CROSS_ENTROPY[rank.how.loss], *([passes.CAST_LOGITS] if casts else [])]
    for number, count in enumerate(counts):
        op = kernel(rank, f"loss.{number}", "cross_entropy", count, tokens * rows, part="end")
        # Passes over logits are counted in 2 bytes, whatever the width of activations.
        two = 2.0 / rank.width
        yield op.changed(bytes=op.bytes * two, backward_bytes=op.backward_bytes * two)
    if rank.how.metric_passes:
        yield MemoryBound(
            name="metrics",
            kind="cross_entropy",
            part="end",
            bytes=2.0 * rank.how.metric_passes * tokens * rows,
            launches=np.ceil(rank.how.metric_passes / passes.COPY),
        )
    if rank.how.gathers_by_product:
        return
    yield Collective(
        name="loss.statistics",
        kind="tensor",
        part="end",
        operation="all_reduce",
        bytes=4 * tokens,
        size=rank.tensor,
        repeats=3.0,
    )


def _gather_logits(rank: Rank, tokens: Array, rows: Array) -> Iterator[Op]:
    """Gather the vocabulary shards of the logits for sampling."""
    yield Collective(
        name="logits.gather",
        kind="tensor",
        part="end",
        operation="all_gather",
        bytes=tokens * rows * rank.tensor * rank.width,
        size=rank.tensor,
        launches=np.where(rank.tensor > 1, 1.0, 0.0),
    )
