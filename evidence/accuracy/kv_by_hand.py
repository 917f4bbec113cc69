"""KV bytes of one token from the keys of a ``config.json`` alone, by hand: beside what the reader counts.

Each rule is the formula of a kind of attention, from raw keys; nothing of the reader is used. Sliding layers
count as full ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Keys = Mapping[str, Any]
INDEX_BYTES = 128 + 4
"""Key of 8 bits and scale of DeepSeek's indexer (vLLM, DeepseekV32IndexerCache)."""


def text_keys(config: Keys) -> Keys:
    """The keys of the text model."""
    parts = [config[key] for key in ("text_config", "llm_config", "language_config") if config.get(key)]
    return {**config, **parts[0]} if parts else config


def kv_bytes(config: Keys, element: float) -> float:
    """KV bytes of one token.

    Args:
        config: content of a ``config.json``.
        element: bytes of a number in the cache.
    """
    keys = text_keys(config)
    if "compress_ratios" in keys:
        return _compressed(keys, element)
    if keys.get("kv_lora_rank"):
        return _latent(keys, element)
    return element * _values(keys) + _sparse_index(keys)


def _values(keys: Keys) -> float:
    """Numbers of keys and values over all layers."""
    layers, heads = _layers(keys), keys.get("num_key_value_heads") or keys["num_attention_heads"]
    width = keys.get("head_dim") or keys.get("attention_head_dim") or 0
    width = width or keys["hidden_size"] // keys["num_attention_heads"]
    if blocks := keys.get("block_configs"):  # NAS: queries of a group, by layer
        groups = [block["attention"].get("n_heads_in_group") for block in blocks]
        return sum(2 * width * keys["num_attention_heads"] // group for group in groups if group)
    if pattern := keys.get("hybrid_override_pattern"):
        return 2.0 * heads * width * pattern.count("*")
    if kinds := keys.get("layers_block_type"):
        return 2.0 * heads * width * kinds.count("attention")
    if "hybrid_layer_pattern" in keys:  # MiMo-V2: 1 for a window
        windows = sum(keys["hybrid_layer_pattern"])
        full = (layers - windows) * heads * (width + keys.get("v_head_dim", width))
        wide = keys["swa_head_dim"] + keys.get("swa_v_head_dim", keys["swa_head_dim"])
        return full + windows * keys["swa_num_key_value_heads"] * wide
    kinds = keys.get("layer_types") or []
    if keys.get("global_head_dim"):  # Gemma 4: other heads in full layers
        full = kinds.count("full_attention")
        wide = (keys.get("num_global_key_value_heads") or heads) * keys["global_head_dim"]
        return 2.0 * (full * wide + (layers - full) * heads * width)
    return 2.0 * heads * width * (layers - kinds[:layers].count("linear_attention"))


def _latent(keys: Keys, element: float) -> float:
    """Multi-head latent attention, the indexer's keys in the layers that have one."""
    layers = _layers(keys)
    if linear := keys.get("linear_attn_config"):  # Kimi Linear
        layers = len(linear["full_attn_layers"])
    indexers = 0
    if keys.get("index_topk"):
        types = keys.get("indexer_types")
        indexers = types.count("full") if types else layers
    return layers * element * (keys["kv_lora_rank"] + keys["qk_rope_head_dim"]) + indexers * INDEX_BYTES


def _compressed(keys: Keys, element: float) -> float:
    """DeepSeek-V4: one entry for each `ratio` tokens, beside an index where the ratio is 4; the windows of a
    layer are no KV of all tokens."""
    ratios = [ratio for ratio in keys["compress_ratios"][: _layers(keys)] if ratio]
    index = element * keys["index_head_dim"]
    return sum((element * keys["head_dim"] + index * (ratio < 16)) / ratio for ratio in ratios)


def _sparse_index(keys: Keys) -> float:
    """MiniMax-M3: keys of the index in 16 bits, in sparse layers."""
    sparse = keys.get("sparse_attention_config") or {}
    return 2.0 * sum(sparse.get("sparse_attention_freq", [])) * sparse.get("sparse_index_dim", 0)


def _layers(keys: Keys) -> int:
    layers = keys.get("num_hidden_layers")
    return layers if layers is not None else len(keys["layers_block_type"])
