"""Multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1).

Training and prefill expand the latent vector into keys and values of every head. Decode absorbs that
expansion into the query and the output, so that the cache holds one latent vector per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from simulator.models import LatentAttention
from simulator.ops import elementwise as passes
from simulator.ops.build import gradient_sums, kernel, linear
from simulator.ops.op import Attention, Decode, Op, Product
from simulator.ops.rank import Array, Rank

INDEX_SHARE = 0.5
"""Time of the indexer's 8-bit scores of prompts, as a share of their time in 16 bits."""
SCORES = passes.MemoryPasses(4.0, 0.0, 1, 0)
"""Passes of 16 bits over the indexer's scores: written in 32 bits, read by the top-k."""


def latent_projections(rank: Rank) -> list[Op]:
    """Down and up projections of queries, and of keys and values; the gate of the output."""
    model, mla = rank.model, _mla(rank)
    queries = rank.heads * model.head_dim
    kept_inputs = rank.tokens * model.hidden / rank.spread
    ops = gradient_sums(rank, "projections_sum", 2, rank.tokens * model.hidden, "projections")
    bias = model.qkv_bias

    def add(name: str, role: str, outputs: Array | float, inputs: int, **more: object) -> None:
        ops.extend(linear(rank, name, role, outputs, inputs, part="projections", **more))  # type: ignore[arg-type]

    if mla.q_lora_rank:
        joined = mla.kv_lora_rank + mla.qk_rope_head_dim if rank.how.joined_latents else 0
        add("query_down", "down", mla.q_lora_rank + joined, model.hidden, bias=bias, keeps=0.0)
        add("query_up", "column", queries, mla.q_lora_rank, bias=False)
    else:
        add("query", "column", queries, model.hidden, bias=bias, keeps=0.0)
    if model.attention_gate:
        add("gate", "column", rank.heads * mla.v_head_dim, model.hidden, bias=False, keeps=0.0)
    if not (mla.q_lora_rank and rank.how.joined_latents):
        add(
            "key_value_down",
            "down",
            mla.kv_lora_rank + mla.qk_rope_head_dim,
            model.hidden,
            bias=bias,
            keeps=kept_inputs,
        )
    expanded = rank.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    tokens = _expanded_tokens(rank)
    if np.any(tokens > 0):
        add(
            "key_value_up",
            "column",
            expanded,
            mla.kv_lora_rank,
            tokens=tokens,
            bias=False,
            depends_on="context",
        )
    if mla.index_topk:
        width = round(mla.index_share * mla.index_heads * mla.index_head_dim)
        key_width = round(mla.index_share * (mla.index_head_dim + mla.index_heads))
        add("index_query", "down", width, mla.q_lora_rank or model.hidden, bias=False, keeps=0.0)
        add("index_key", "down", key_width, model.hidden, bias=False, keeps=0.0)
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
    if mla.index_topk:
        yield from choose_keys(rank, sequences, keys, name)
        # Kernels read a full list of keys, padded where a sequence is shorter (FlashMLA, sparse decode).
        keys = np.full_like(keys, mla.index_topk)
    for suffix, outputs, inputs in (
        ("absorb_query", mla.kv_lora_rank, mla.qk_nope_head_dim),
        ("absorb_output", mla.v_head_dim, mla.kv_lora_rank),
    ):
        yield Product(
            name=f"{name}.{suffix}",
            part="projections",
            module="attention",
            depends_on="context",
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
        module="attention",
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


def choose_keys(
    rank: Rank, sequences: Array, keys: Array, name: str, queries: Array | None = None
) -> list[Op]:
    """The indexer of sparse attention: scores of all keys in 8 bits, and top-k; mean of layers that share it.

    Every rank scores with all heads of the indexer, whose keys are cached in 8 bits (DeepSeek-V3.2-Exp,
    section 2.1; vLLM's and SGLang's Indexer).

    Args:
        rank: the batch, the shard and its kernels.
        sequences: number of decoding sequences, or of prompts.
        keys: keys per sequence.
        name: name of the attention op.
        queries: query tokens per prompt; without it, sequences decode.
    """
    mla = _mla(rank)
    width, heads = mla.index_head_dim, float(mla.index_heads)
    sequences = sequences * mla.index_share
    common: dict[str, Any] = {"name": f"{name}.index", "part": "core", "module": "attention"}
    common |= {"sequences": sequences, "keys": keys}
    common |= {"heads": heads, "kv_heads": 1.0, "head_dim": width, "v_head_dim": 0}
    if queries is None:
        # Scores are one product, without values; the cache's bytes bound it.
        scores: Op = Decode(**common, dtype=rank.formats.core, kv_dtype="fp8", latent=True)
        scored_pairs = sequences * keys
    else:
        scores = Attention(**common, queries=queries, dtype=rank.formats.core, repeats=INDEX_SHARE)
        scored_pairs = sequences * queries * (keys - (queries - 1) / 2)
    choose = kernel(
        rank,
        f"{name}.choose",
        "softmax",
        SCORES,
        scored_pairs,
        part="core",
        module="attention",
        depends_on="context",
    )
    return [scores, choose]


def sparse_share(rank: Rank, queries: Array, keys: Array) -> Array:
    """FLOPs of a prompt chunk's sparse attention over the FLOPs of attention to all keys.

    A query with more keys than are chosen attends to those in the latent space, where scores and values of a
    head are wider than its own keys and values (the paper's MQA mode); earlier queries attend to all
    (SGLang's nsa_backend.py).
    """
    mla = _mla(rank)
    topk = float(mla.index_topk or np.inf)
    head_width = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
    wider = (2 * mla.kv_lora_rank + mla.qk_rope_head_dim) / head_width

    def work(length: Array) -> Array:
        inside = np.minimum(length, topk)
        return inside * (inside + 1) / 2 + wider * (length - inside) * topk

    full = queries * (keys - (queries - 1) / 2)
    return np.where(keys > topk, (work(keys) - work(keys - queries)) / full, 1.0)


def latent_append(rank: Rank) -> Op:
    """Write the new latent vectors into the cache, and keys of the indexer in 8 bits."""
    mla = _mla(rank)
    width = mla.kv_lora_rank + mla.qk_rope_head_dim + _index_width(mla) / 2
    return kernel(rank, "append", "copy", passes.APPEND, rank.tokens * width, part="core")


def _index_width(mla: LatentAttention) -> float:
    """Values of an indexer's key, mean of the layers."""
    return mla.index_share * mla.index_head_dim if mla.index_topk else 0.0


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
