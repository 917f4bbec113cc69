"""Attention with heads: multi-head, grouped and multi-query, in full or over a sliding window."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from simulator.ops import elementwise as passes
from simulator.ops.batch import Segment
from simulator.ops.build import kernel, linear, separate_sums
from simulator.ops.context import STATISTICS_BYTES, blocks_of, exchange, merge_blocks
from simulator.ops.latent import (
    absorbed_decode,
    choose_keys,
    latent_append,
    latent_norms,
    latent_projections,
    sparse_share,
)
from simulator.ops.op import Attention, Decode, MemoryBound, Op, Product
from simulator.ops.rank import Array, Rank

NARROW = "flash-mx8"
"""Attention over queries, keys and values in MXFP8."""


def attention(rank: Rank, kind: str = "full") -> list[Op]:
    """Ops of one attention block: projections, the attention core, and context-parallel traffic.

    Args:
        rank: the batch, the shard and its kernels.
        kind: full or sliding.
    """
    return [
        *(latent_projections(rank) if rank.model.mla else _projections(rank)),
        *_before_core(rank),
        *_core(rank, kind),
        *exchange(rank),
        *_gate(rank),
        *_output(rank),
    ]


def _projections(rank: Rank) -> list[Op]:
    model = rank.model
    queries = rank.heads * (2 if model.attention_gate else 1)
    keys = rank.kv_heads * (model.head_dim + (0 if model.shared_values else model.v_head_dim))
    direct = 0.0 if model.query_rank else queries * model.head_dim
    width = direct + keys + model.query_rank
    readers = 3 if rank.how.separate_products else 1
    return [
        *separate_sums(rank, "projections_sum", readers, "projections"),
        *linear(
            rank,
            "query_key_value",
            "column",
            width,
            model.hidden,
            part="projections",
            bias=model.qkv_bias,
            keeps=rank.tokens * model.hidden / rank.spread,
        ),
        *_expanded_queries(rank, queries),
    ]


def _expanded_queries(rank: Rank, queries: Array) -> list[Op]:
    """The product that expands compressed queries to heads, where the model compresses them."""
    model = rank.model
    if not model.query_rank:
        return []
    width = queries * model.head_dim
    return linear(rank, "query_up", "column", width, model.query_rank, part="projections", bias=False)


def _output(rank: Rank) -> list[Op]:
    model = rank.model
    width = rank.heads * model.v_head_dim
    if not model.output_rank:
        return linear(rank, "attention_output", "row", model.hidden, width, part="projections")
    # Groups of heads are projected apart: as many products of a group's width as one of the whole width.
    inner = model.output_rank * model.output_groups / rank.tensor
    return [
        *linear(rank, "attention_inner", "column", model.output_rank, width, part="projections", bias=False),
        *linear(rank, "attention_output", "row", model.hidden, inner, part="projections"),
    ]


def _gate(rank: Rank) -> Iterator[Op]:
    """The gate of attention's output, if the model has one; backward needs both factors."""
    if rank.model.attention_gate:
        elements = rank.tokens * rank.heads * rank.model.v_head_dim
        kept_bytes = 2 * rank.width * elements
        yield kernel(
            rank, "output_gate", "activation", passes.OUTPUT_GATE, elements, part="core", saved=kept_bytes
        )


def _before_core(rank: Rank) -> Iterator[Op]:
    """Rotary embedding, norms of heads, and the cache's append."""
    model, fusion, tokens = rank.model, rank.how.elementwise, rank.tokens
    if model.position == "rope":
        rotated = tokens * (rank.heads + rank.kv_heads) * model.head_dim
        chain = model.mla and not rank.how.fused_latent_rope
        rotary = passes.LATENT_ROTARY if chain else passes.ROTARY[rank.how.rotary or fusion]
        yield kernel(rank, "rope", "rope", rotary, rotated, part="core")
    if model.qk_norm:
        for name, heads in (("query_norm", rank.heads), ("key_norm", rank.kv_heads)):
            elements = tokens * heads * model.head_dim
            # A compiler keeps these inputs alone and computes the core's operands again.
            copies = 0.0 if rank.how.joins_sums else passes.NORMS_KEPT[rank.how.norm]
            kept_bytes, width = copies * rank.width * elements, float(model.head_dim)
            yield kernel(
                rank, name, "norm", passes.NORM, elements, part="core", saved=kept_bytes, parameters=width
            )
    if model.mla:
        yield from latent_norms(rank)
    appended = sum((s.tokens for s in rank.batch.segments if s.phase == "decode"), np.zeros(()))
    if rank.how.appends and model.mla:
        yield latent_append(rank)
    elif rank.how.appends and np.any(appended > 0):
        elements = appended * rank.kv_heads * (model.head_dim + model.v_head_dim)
        yield kernel(rank, "append", "copy", passes.APPEND, elements, part="core")


def _core(rank: Rank, kind: str) -> Iterator[Op]:
    """softmax(QK^T)V of one rank's heads for every segment, and the copies around it."""
    model, fusion, tokens = rank.model, rank.how.elementwise, rank.tokens
    fused = rank.how.attention != "unfused"
    for number, segment in enumerate(rank.batch.segments):
        name = f"attention.{number}" if number else "attention"
        if segment.phase == "decode" and model.mla and rank.how.absorbs:
            keys = np.asarray(segment.context, dtype=np.float64)
            yield from absorbed_decode(rank, segment.tokens, keys, name)
        elif segment.phase == "decode":
            yield _decode(rank, segment, name, kind)
        elif fused:
            if model.mla and model.mla.index_topk:
                yield from _choose(rank, segment, name)
            yield from _flash(rank, segment, name, kind)
        else:
            yield from _unfused(rank, segment, name)
    if fused:
        yield from merge_blocks(rank)
        if rank.how.splits_projection and model.position == "rope":
            yield _split_projection(rank)
    if fused and rank.how.swaps_batch:
        swapped = 2 * tokens * (rank.heads + rank.kv_heads) * model.head_dim
        yield kernel(rank, "batch_first", "copy", passes.BATCH_FIRST, swapped, part="core")
    copies = passes.JOIN_HEADS[fusion] if fused else passes.SPLIT_HEADS[fusion]
    copied = tokens * (rank.heads + 2 * rank.kv_heads) * model.head_dim
    if copies.forward or copies.backward:
        yield kernel(rank, "heads", "copy", copies, copied, part="core")


def core_over(rank: Rank, segment: Segment, name: str) -> list[Op]:
    """softmax(QK^T)V of queries over keys of other tokens."""
    fused = rank.how.attention != "unfused"
    return list(_flash(rank, segment, name, "full") if fused else _unfused(rank, segment, name))


def _choose(rank: Rank, segment: Segment, name: str) -> list[Op]:
    """The indexer of sparse attention over a prompt's chunk or a training sequence."""
    sequences, queries, keys = (
        np.asarray(size, dtype=np.float64) for size in (segment.sequences, segment.queries, segment.context)
    )
    return choose_keys(rank, sequences, keys, name, queries / rank.context)


def seen_keys(rank: Rank, segment: Segment, kind: str) -> tuple[Array, Array]:
    """Keys that the last query of a segment attends to, and the share of scores inside the window."""
    keys = np.asarray(segment.context, dtype=np.float64)
    queries = np.asarray(segment.queries, dtype=np.float64)
    window = rank.model.sliding_window
    # cuDNN's 8-bit backward pass computes masked blocks too: its time grows with the square of the sequence.
    if kind != "sliding" or window is None or not rank.how.skips_blocks or rank.how.attention == NARROW:
        return keys, np.ones(())
    keys = np.minimum(keys, window + queries - 1)

    def area(length: Array) -> Array:
        inside = np.minimum(length, window)
        return inside * (inside + 1) / 2 + (length - inside) * window

    full = queries * (keys - (queries - 1) / 2) if segment.causal else queries * keys
    share = (area(keys) - area(keys - queries)) / full
    return keys, np.where(keys > window, share, 1.0)


def _decode(rank: Rank, segment: Segment, name: str, kind: str) -> Op:
    keys, model = np.asarray(segment.context, dtype=np.float64), rank.model
    if kind == "sliding" and model.sliding_window is not None:
        keys = np.minimum(keys, model.sliding_window)
    return Decode(
        name=name,
        part="core",
        module="attention",
        sequences=segment.tokens,
        keys=keys,
        heads=rank.heads,
        kv_heads=rank.kv_heads,
        head_dim=model.head_dim,
        v_head_dim=model.v_head_dim,
        dtype=rank.formats.core,
        kv_dtype=rank.formats.kv,
    )


def _flash(rank: Rank, segment: Segment, name: str, kind: str) -> Iterator[Op]:
    """Fused attention over the blocks of the sequence that one context-parallel rank sees.

    Ring and all-gather attention balance the causal triangle by giving every rank two slices from opposite
    ends (Megatron Core, Llama 3): one causal block of s/c and c-1 full ones of half its width. Ulysses
    shards heads instead of the sequence.
    """
    model, c, how = rank.model, rank.context, rank.how
    split, blocks = rank.context_heads, blocks_of(rank)
    keys, share = seen_keys(rank, segment, kind)
    if model.mla and model.mla.index_topk:
        share = share * sparse_share(rank, np.asarray(segment.queries, dtype=np.float64), keys)
    queries, keys = np.asarray(segment.queries, dtype=np.float64) / blocks, keys / blocks
    statistics = STATISTICS_BYTES * segment.tokens / c * rank.heads
    own_block = Attention(
        name=name,
        part="core",
        module="attention",
        repeats=share,
        sequences=segment.sequences,  # type: ignore[arg-type]
        queries=queries,
        keys=keys,
        heads=np.maximum(rank.heads / split, np.minimum(rank.heads, 1)),
        kv_heads=np.maximum(rank.kv_heads / split, 1),
        head_dim=model.head_dim,
        v_head_dim=model.v_head_dim,
        causal=segment.causal,
        dtype=rank.formats.core,
        kv_dtype=rank.formats.kv,
        appends=how.appends and model.mla is None,
        latent=model.mla is not None,
        version=how.attention,
        saved=_kept_heads(rank, segment) + statistics,
        intermediate=statistics,
    )
    if how.attention == NARROW:
        yield _cast_heads(rank, segment)
    yield own_block
    if np.any(blocks > 1):
        yield _other_blocks(own_block, blocks - 1)


def _cast_heads(rank: Rank, segment: Segment) -> Op:
    """Quantise queries, keys and values forward, the gradient of the output backward; by rows and columns."""
    model, tokens = rank.model, segment.tokens / rank.context
    value = rank.heads * model.v_head_dim
    heads = rank.heads * model.head_dim + rank.kv_heads * (model.head_dim + model.v_head_dim)
    passes_of_2_bytes = rank.how.cast_passes or 2.0
    size = rank.width * passes_of_2_bytes * tokens
    return MemoryBound(
        name="attention.cast",
        kind="elementwise",
        variant="quantize_fp8",
        part="core",
        module="attention",
        bytes=size * heads,
        launches=3.0,
        backward_bytes=size * value,
        backward_launches=1.0,
    )


def _other_blocks(own_block: Attention, others: Array) -> Attention:
    """Blocks of keys from other ranks; the launches are counted with the rank's own block."""
    return Attention(
        name=f"{own_block.name}.others",
        part="core",
        module=own_block.module,
        repeats=others * own_block.repeats,
        launches=0.0,
        sequences=own_block.sequences,
        queries=own_block.queries,
        keys=own_block.keys / 2 if own_block.causal else own_block.keys,
        heads=own_block.heads,
        kv_heads=own_block.kv_heads,
        head_dim=own_block.head_dim,
        v_head_dim=own_block.v_head_dim,
        causal=False,
        dtype=own_block.dtype,
        kv_dtype=own_block.kv_dtype,
        latent=own_block.latent,
        version=own_block.version,
    )


def _kept_heads(rank: Rank, segment: Segment) -> Array:
    """Bytes of queries, keys and values that the backward pass needs."""
    width = (rank.heads + 2 * rank.kv_heads) * rank.model.head_dim
    return rank.width * segment.tokens / rank.context * width


def _unfused(rank: Rank, segment: Segment, name: str) -> Iterator[Op]:
    """Attention as matrix products and a softmax over all scores, including masked ones."""
    d, v = rank.model.head_dim, rank.model.v_head_dim
    rows = np.asarray(segment.queries, dtype=np.float64) / rank.context
    keys = np.asarray(segment.context, dtype=np.float64)
    batch = np.asarray(segment.sequences, dtype=np.float64) * rank.heads
    row_bytes = math.gcd(int(d * rank.width), 16)
    for suffix, n, k in (("scores", keys, d), ("values", v, keys)):
        yield Product(
            name=f"{name}.{suffix}",
            kind="attention",
            part="core",
            module="attention",
            m=rows,
            n=n,
            k=k,
            groups=batch,
            dtype=rank.formats.core,
            weights=False,
            row_bytes=row_bytes,
            saved=_kept_heads(rank, segment) if suffix == "scores" else 0.0,
        )
    yield from _softmax(rank, name, batch, rows * keys)


def _softmax(rank: Rank, name: str, batch: Array, scores: Array) -> Iterator[Op]:
    """Softmax over ``scores`` elements of each of ``batch`` matrices: one kernel, or a chain of them.

    Megatron's fused kernel takes multiples of four matrices; torch runs the others. XLA keeps the 32-bit
    exponentials beside the 16-bit probabilities, transformers a softmax of 32 bits. Backward torch's softmax
    of 32 bits reads a 32-bit gradient and writes one of the scores' format.
    """
    fusion, dropout, named = rank.how.elementwise, rank.how.dropout, rank.how.softmax
    fused = fusion == "fused" and not named
    apart = np.where(batch % passes.FUSED_SOFTMAX_MULTIPLE > 0, 1.0, 0.0) * fused
    chained = bool(np.any(apart))
    count = passes.SOFTMAX_KERNELS[named][dropout] if named else passes.SOFTMAX[fusion, dropout]
    saved = rank.width + (4.0 if named else 0.0)
    passing = rank.width + 4.0 if named == "wide" else 0.0
    kernels = [("softmax", count, saved, passing, 1.0 - apart if chained else 1.0)]
    if chained:
        kernels.append(("torch_softmax", passes.TORCH_SOFTMAX[dropout], rank.width + 4.0, 8.0, apart))
    elements = batch * scores
    for kind, count, saved, passing, repeats in kernels:
        kept_bytes = repeats * elements * (saved + (rank.width + 1 if dropout else 0))
        op = kernel(
            rank,
            f"{name}.{kind}",
            "softmax",
            count,
            elements,
            part="core",
            module="attention",
            saved=kept_bytes,
            repeats=repeats,
        )
        yield op.changed(intermediate=kept_bytes, passing=passing * repeats * elements)


def _split_projection(rank: Rank) -> Op:
    """Copies that take query, key and value out of one projection's output, and their gradients back.

    RoPE writes query and key to new tensors. Values are then no longer contiguous with them, so attention
    copies the values. Queries of grouped heads are not contiguous either. Backward joins the gradients.
    """
    model = rank.model
    grouped = model.heads > model.kv_heads
    elements = rank.tokens * model.head_dim
    copied = elements * (rank.kv_heads + (rank.heads if grouped else 0))
    joined = elements * (rank.heads + 2 * rank.kv_heads)
    return MemoryBound(
        name="split_projection",
        kind="copy",
        part="core",
        module="split_projection",
        bytes=2 * rank.width * copied,
        launches=2 if grouped else 1,
        backward_bytes=2 * rank.width * joined,
        backward_launches=1,
    )
