"""Multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1).

Training and prefill expand the latent vector into keys and values of every head. Decode absorbs that
expansion into the query and the output, so that the cache holds one latent vector per token.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.models import LatentAttention
from simulator.ops import elementwise as passes
from simulator.ops.build import kernel, linear
from simulator.ops.op import Decode, Op, Product
from simulator.ops.rank import Array, Rank


def latent_projections(rank: Rank) -> list[Op]:
    """Down and up projections of queries, and of keys and values."""
    model, mla = rank.model, _mla(rank)
    queries = rank.heads * model.head_dim
    kept = rank.tokens * model.hidden / rank.spread
    ops: list[Op] = []
    bias = model.qkv_bias

    def add(name: str, role: str, outputs: Array | float, inputs: int, **more: object) -> None:
        ops.extend(linear(rank, name, role, outputs, inputs, part="projections", **more))  # type: ignore[arg-type]

    if mla.q_lora_rank:
        add("query_down", "down", mla.q_lora_rank, model.hidden, bias=bias, keeps=0.0)
        add("query_up", "column", queries, mla.q_lora_rank, bias=False)
    else:
        add("query", "column", queries, model.hidden, bias=bias, keeps=0.0)
    add(
        "key_value_down",
        "down",
        mla.kv_lora_rank + mla.qk_rope_head_dim,
        model.hidden,
        bias=bias,
        keeps=kept,
    )
    expanded = rank.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    tokens = _expanded_tokens(rank)
    if np.any(tokens > 0):
        add("key_value_up", "column", expanded, mla.kv_lora_rank, tokens=tokens, bias=False)
    return ops


def latent_norms(rank: Rank) -> Iterator[Op]:
    """Norms of the latent vectors."""
    mla = _mla(rank)
    latent = mla.kv_lora_rank + (mla.q_lora_rank or 0)
    yield kernel(
        rank,
        "latent_norm",
        "norm",
        passes.NORM,
        rank.tokens * latent,
        part="core",
        parameters=float(latent),
    )


def absorbed_decode(rank: Rank, sequences: Array, keys: Array, name: str) -> Iterator[Op]:
    """Decode attention in the latent space, with the products into and out of that space."""
    mla = _mla(rank)
    for suffix, outputs, inputs in (
        ("absorb_query", mla.kv_lora_rank, mla.qk_nope_head_dim),
        ("absorb_output", mla.v_head_dim, mla.kv_lora_rank),
    ):
        yield Product(
            name=f"{name}.{suffix}",
            part="projections",
            m=sequences,
            n=float(outputs),
            k=float(inputs),
            groups=rank.heads,
            dtype=rank.formats.core,
            role="column",
            # The decode kernel's library keeps this product at 16 bits; its weights are key_value_up's.
        )
    yield Decode(
        name=name,
        part="core",
        sequences=sequences,
        keys=keys,
        heads=rank.heads,
        kv_heads=1.0,
        head_dim=mla.kv_lora_rank + mla.qk_rope_head_dim,
        v_head_dim=mla.kv_lora_rank,
        dtype=rank.formats.core,
        kv_dtype=rank.formats.kv,
        latent=True,
    )


def latent_append(rank: Rank) -> Op:
    """Write the new latent vectors into the cache."""
    mla = _mla(rank)
    width = mla.kv_lora_rank + mla.qk_rope_head_dim
    return kernel(rank, "append", "copy", passes.APPEND, rank.tokens * width, part="core")


def _expanded_tokens(rank: Rank) -> Array:
    """Tokens whose keys and values are expanded: those of prefill segments and their cached context."""
    if not (rank.how.absorbs and rank.how.appends):
        return rank.tokens
    prefill = (s for s in rank.batch.segments if s.phase == "prefill")
    return sum((np.multiply(s.sequences, s.context, dtype=np.float64) for s in prefill), np.zeros(()))


def _mla(rank: Rank) -> LatentAttention:
    if rank.model.mla is None:
        raise ValueError(f"{rank.model.name} has no latent attention")
    return rank.model.mla
