"""Rules of a ``config.json`` for decoders that are like a known one but for parts without ops.

These parts are counted in ``other_parameters``; ``UNPRICED`` of `huggingface_families` names them. Shapes are
those of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import InputError, shown
from simulator.models.huggingface_rules import Config, whole_of

MINICPM: Mapping[object, dict[str, Any]] = {
    "2.5": {},
    "2.6": {"qkv_bias": True},
    "4.0": {},
    "4.5": {"qk_norm": True},
}
"""What layers have beside Llama's, by the ``version`` of a MiniCPM-V or MiniCPM-o: those of Llama 3, Qwen2,
MiniCPM4 and Qwen3 (openbmb/MiniCPM-V-*, modeling_minicpmv.py: ``self.llm``)."""


def mllama(config: Config) -> dict[str, Any]:
    """Llama 3.2 Vision: layers that attend to a picture are passed over where there is none.

    Raises:
        InputError: cross_attention_layers is no list of layers.
    """
    layers, crossing = (
        whole_of(config, "num_hidden_layers"),
        config.values.get("cross_attention_layers") or [],
    )
    if not isinstance(crossing, list) or not all(type(at) is int and 0 <= at < layers for at in crossing):
        problem = f"cross_attention_layers: layers from 0 to {layers - 1} are needed, found {shown(crossing)}"
        raise InputError(problem, config.where)
    hidden, heads = whole_of(config, "hidden_size"), whole_of(config, "num_attention_heads")
    width = hidden // max(heads, 1)
    keys = whole_of(config, "num_key_value_heads", heads) * width
    mlp = 3 * whole_of(config, "intermediate_size")
    layer = hidden * (2 * heads * width + 2 * keys + mlp + 2) + 2 * width + 2
    # Eight rows of the embedding stand for tokens of pictures, and are no words of the output layer.
    rows = 8 * hidden
    return {"layers": layers - len(set(crossing)), "other_parameters": len(set(crossing)) * layer + rows}


def axk2(config: Config) -> dict[str, Any]:
    """Latent attention whose queries and gates come from one product of twice the rank; gates of norms."""
    layers, rank = whole_of(config, "num_hidden_layers"), whole_of(config, "q_lora_rank")
    query = whole_of(config, "qk_nope_head_dim") + whole_of(config, "qk_rope_head_dim")
    both = 2 * (query + whole_of(config, "v_head_dim")) - query
    norms = 4 * whole_of(config, "gated_norm_rank") * whole_of(config, "hidden_size")
    return {"other_parameters": layers * (whole_of(config, "num_attention_heads") * both * rank + norms)}


def hy_v4(config: Config) -> dict[str, Any]:
    """DeepSeek's latent and sparse attention with an output gate; hyper-connections of several lanes."""
    lanes, layers = whole_of(config, "hc_mult", 1), whole_of(config, "num_hidden_layers")
    lane = lanes * whole_of(config, "hidden_size") + 1
    return {"other_parameters": lanes * lane * (4 * layers + 1) + 4 * layers + 1}


def inkling(config: Config) -> dict[str, Any]:
    """Sliding layers with heads of their own, positions by products with queries, short convolutions."""
    heads, width = whole_of(config, "num_attention_heads"), whole_of(config, "head_dim")
    sliding = {
        "heads": config.number("swa_num_attention_heads") or heads,
        "kv_heads": config.number("swa_num_key_value_heads", "num_key_value_heads"),
        "head_dim": config.number("swa_head_dim") or width,
    }
    hidden, kernel = whole_of(config, "hidden_size"), whole_of(config, "conv_kernel_size", 4)
    each = whole_of(config, "d_rel") * (heads * hidden + whole_of(config, "rel_extent"))
    each += kernel * 2 * (hidden + whole_of(config, "num_key_value_heads") * width)
    return {"sliding_attention": sliding, "other_parameters": whole_of(config, "num_hidden_layers") * each}


def zaya(config: Config) -> dict[str, Any]:
    """Queries and keys pass two convolutions of neighbours; an MLP of three layers routes (ZAYA1)."""
    heads, width = whole_of(config, "num_attention_heads"), whole_of(config, "head_dim")
    channels = (heads + whole_of(config, "num_key_value_heads")) * width
    taps = whole_of(config, "cca_time0", 2) + 1 + width * whole_of(config, "cca_time1", 2) + 1
    hidden, router = whole_of(config, "hidden_size"), whole_of(config, "router_hidden_size", 256)
    routed = router * (hidden + 2 * router + whole_of(config, "num_experts") + 6)
    routed -= hidden * whole_of(config, "num_experts")
    layers = whole_of(config, "num_hidden_layers")
    return {"other_parameters": layers * max(channels * taps + routed + 8 * hidden, 0)}


def doge(config: Config) -> dict[str, Any]:
    """Llama with a mask of its own and scaled residuals.

    Raises:
        InputError: experts, which a table of keys retrieves.
    """
    if config.flag("is_moe"):
        raise InputError("is_moe: experts that a table of keys retrieves are not supported", config.where)
    hidden, kv_heads = whole_of(config, "hidden_size"), whole_of(config, "num_key_value_heads", 1)
    width = hidden // max(whole_of(config, "num_attention_heads", 1), 1)
    each = 2 * hidden + kv_heads * (kv_heads * width + 1)
    return {"moe.experts": 0, "other_parameters": whole_of(config, "num_hidden_layers") * each}


def jetmoe(config: Config) -> dict[str, Any]:
    """Experts of attention project queries and outputs: a token's heads are those of the chosen ones."""
    heads, width = whole_of(config, "num_key_value_heads"), whole_of(config, "kv_channels")
    experts, top_k = whole_of(config, "num_local_experts"), whole_of(config, "num_experts_per_tok", 1)
    hidden = whole_of(config, "hidden_size")
    each = 2 * (experts - top_k) * hidden * heads * width + experts * hidden
    other = whole_of(config, "num_hidden_layers") * max(each, 0)
    return {"heads": heads * top_k, "kv_heads": heads, "other_parameters": other}


def cpmant(config: Config) -> dict[str, Any]:
    """CPM-Ant: prompts lengthen the table of the input, biases of distances and segments beside it."""
    hidden, types = whole_of(config, "hidden_size"), whole_of(config, "segment_types")
    rows = whole_of(config, "prompt_types") * whole_of(config, "prompt_length") + types
    buckets = whole_of(config, "position_bias_num_buckets") + types * types
    # That table is not the output's, whatever ``tie_word_embeddings`` says.
    other = rows * hidden + buckets * whole_of(config, "num_attention_heads")
    return {"tied_embeddings": False, "other_parameters": other}


def minicpmv(config: Config) -> dict[str, Any]:
    """MiniCPM-V and MiniCPM-o: the language model whose keys the file has beside the tower's.

    Raises:
        InputError: no version, or another.
    """
    version = config.values.get("version")
    fields = MINICPM.get(str(version))
    if fields is None:
        raise InputError(
            f"version: one of {', '.join(map(str, MINICPM))} is needed, found {shown(version)}", config.where
        )
    return fields
