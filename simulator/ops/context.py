"""Context-parallel traffic of attention with heads: what ranks exchange, and beside which kernels.

``context_heads`` ranks split the heads of a sequence (Ulysses), ``context / context_heads`` ranks split the
sequence of one head. The algorithms of ``simulator.plan.ContextAlgorithm`` differ in these degrees and in
what the second group sends.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simulator.ops.op import Collective, MemoryBound, Op, Size
from simulator.ops.rank import Array, Rank
from simulator.plan import ALL_GATHER, RING, TOKEN_RING, ULYSSES, USP

Mask = NDArray[np.bool_]

ROUNDS_OF = RING, USP, TOKEN_RING
"""Algorithms whose ranks send blocks around a ring, and merge what each block adds to the output."""

STATISTICS_BYTES = 4.0
"""Bytes that fused attention saves per query and head: the log of the sum of exponentials."""


def blocks_of(rank: Rank) -> Array:
    """Ranks over which the sequence of one head is split, shape (cases,)."""
    return rank.context / rank.context_heads


def merge_blocks(rank: Rank) -> Iterator[Op]:
    """Memory traffic of ring attention beside the blocks' kernels.

    Forward, keys and values are packed for the neighbour (2 passes), the output is cleared (1) and every
    block's output scaled and added to it (3). Backward, the gradients of queries are copied (2) or added
    (3), those of keys and values packed and added to those received from the neighbour (5). A causal mask
    leaves half of the blocks from other ranks half of the queries. Read in Transformer Engine 1.x,
    attention.py: AttnFuncWithCPAndKVP2P. A token ring is charged the same: its queries are packed for the
    neighbour in place of keys and values.
    """
    blocks = blocks_of(rank)
    rounds = np.isin(rank.shard.context_algorithm, ROUNDS_OF) & (blocks > 1)
    if not np.any(rounds):
        return
    size = rank.tokens * rank.model.head_dim * rank.width
    query, pair = size * rank.heads, size * 2 * rank.kv_heads
    causal = all(segment.causal for segment in rank.batch.segments)
    others = (blocks - 1) * (0.75 if causal else 1.0)
    yield MemoryBound(
        name="merge_blocks",
        kind="copy",
        part="core",
        repeats=1.0 * rounds,
        bytes=(1 + 3 * (1 + others)) * query + 2 * pair,
        launches=rounds * (2 + 2 * blocks),
        backward_bytes=(2 + 3 * others) * query + (2 + 5 * blocks) * pair,
        backward_launches=rounds * 3 * blocks,
    )


def exchange(rank: Rank) -> Iterator[Op]:
    """Context-parallel traffic of one layer.

    Ring: keys and values are sent c-1 times to the neighbour while a block is computed; the backward pass
    sends their gradients too. All-gather: one gather forward, one gather and one reduce-scatter backward
    (Llama 3, section 3.3.2). Ulysses: all-to-all of queries, keys, values and the output. USP: Ulysses over
    neighbouring ranks, then a ring of keys and values over the others (Fang and Zhao 2024, arXiv 2405.07719).
    """
    if not np.any(rank.context > 1):
        return
    model, blocks = rank.model, blocks_of(rank)
    # A key and a value, or a query and its output, of one head.
    pair = rank.tokens * (model.head_dim + model.v_head_dim) * rank.width
    kv = pair * rank.kv_heads
    algorithm = np.asarray(rank.shard.context_algorithm)
    ring = np.isin(algorithm, (RING, USP))
    # Fewer key-value heads than ranks that split heads: ranks hold copies.
    copies = np.maximum(rank.context_heads / rank.kv_heads, 1.0)
    yield _send(rank, "ring", ring, "send_receive", kv * copies, blocks, 2, times=blocks - 1)
    gather = algorithm == ALL_GATHER
    yield _send(rank, "gather", gather, "all_gather", kv * rank.context, blocks, again="reduce_scatter")
    heads = np.isin(algorithm, (ULYSSES, USP))
    yield _send(rank, "swap_queries", heads, "all_to_all", pair * rank.heads, rank.context_heads)
    yield _send(rank, "swap_keys", heads, "all_to_all", kv, rank.context_heads)
    if np.any(algorithm == TOKEN_RING):
        yield _token_ring(rank, algorithm == TOKEN_RING)


def _send(
    rank: Rank,
    name: str,
    used: Mask,
    operation: str,
    size: Size,
    ranks: Array,
    backward: int = 1,
    again: str = "",
    times: Size = 1.0,
) -> Op:
    """A collective of cases that use it; backward ``backward`` times, and another one."""
    swaps = operation == "all_to_all"

    def collective(of: str, gradient: str = "", repeats: int = 1) -> Collective:
        return Collective(
            name=f"context.{name}" + (f".{of}" if gradient else ""),
            kind="context",
            part="core",
            operation=of,
            bytes=size,
            size=np.where(used, ranks, 1.0),
            stride=rank.tensor if swaps else rank.tensor * rank.context_heads,
            repeats=times * repeats,
            gradient=gradient,  # type: ignore[arg-type]
            window=window_of(used, ranks) if of == "send_receive" else 0.0,
        )

    extra = (collective(again, "input"),) if again else ()
    return collective(operation).changed(only_backward=(collective(operation, "input", backward), *extra))


def window_of(used: Mask, blocks: Array) -> Array:
    """Share of the core's kernels beside which a ring sends: all but those of the last block."""
    return np.where(used, (blocks - 1) / blocks, 0.0)


def _token_ring(rank: Rank, used: Mask) -> Op:
    """TokenRing: queries travel one way, outputs with their statistics the other; keys and values stay.

    Where neighbours on both sides have links of their own (a mesh), both directions are sent side by side;
    behind a switch a device sends both over one port. Backward, queries and the gradient of the output
    travel one way, the gradient of queries the other (ACA-Lab-SJTU/token-ring).
    """
    blocks, heads = blocks_of(rank), rank.tokens * rank.heads
    side_by_side = rank.how.mesh & (rank.tensor * rank.context <= rank.how.node)
    queries = heads * rank.model.head_dim * rank.width
    outputs = heads * (rank.model.v_head_dim * rank.width + STATISTICS_BYTES)
    size = np.where(used, blocks, 1.0)

    def sends(one_way: Size, other_way: Size, gradient: str = "") -> Collective:
        return Collective(
            name="context.token_ring" + (".backward" if gradient else ""),
            kind="context",
            part="core",
            operation="send_receive",
            bytes=np.where(side_by_side, np.maximum(one_way, other_way), np.add(one_way, other_way)),
            size=size,
            stride=rank.tensor,
            repeats=blocks - 1,
            gradient=gradient,  # type: ignore[arg-type]
            window=window_of(used, blocks),
        )

    back = sends(queries + outputs, queries, "input")
    return sends(queries, outputs).changed(only_backward=(back,))
