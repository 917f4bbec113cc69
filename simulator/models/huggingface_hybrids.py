"""Rules of a ``config.json`` for hybrids: linear attention and state-space mixers between attention layers.

Parts without ops are counted in ``other_parameters``; ``UNPRICED`` of `huggingface_families` names them.
"""

from __future__ import annotations

from typing import Any

from core.errors import InputError
from simulator.models.huggingface_rules import Config, kinds_of, pattern_of, present, whole_of


def kimi_linear(config: Config) -> dict[str, Any]:
    """Kimi Delta Attention, whose channels decay by gates of low rank, beside latent attention."""
    linear_config = config.inner("linear_attn_config")
    layers, hidden = whole_of(config, "num_hidden_layers"), whole_of(config, "hidden_size")
    heads = linear_config.number("num_heads") or config.number("linear_num_heads")
    width = linear_config.number("head_dim") or config.number("linear_head_dim")
    pattern = kinds_of(config, {"linear_attention": "linear", "kda": "linear"})
    full_layers = linear_config.values.get("full_attn_layers")
    if isinstance(full_layers, list):
        pattern = ["full" if layer + 1 in full_layers else "linear" for layer in range(layers)]
    full_rank = bool(linear_config.flag("use_full_rank_gate"))
    direct = config.values.get("model_type") == "bailing_hybrid"
    linear = {
        "heads": heads,
        "value_dim": width,
        "key_heads": heads,
        "key_dim": width,
        "convolution": linear_config.number("short_conv_kernel_size")
        or config.number("linear_conv_kernel_dim", "short_conv_kernel_size"),
        "head_parameters": 1 + (width or 0),
        "gate_rank": 0 if full_rank or direct else width,
        "channel_gates": not full_rank,
        "delta": True,
    }
    # Decays of low rank beside an output gate of full rank have no product of their own.
    other = (
        pattern.count("linear") * (hidden + (heads or 0) * (width or 0)) * (width or 0) if full_rank else 0
    )
    return {
        "linear": present(linear),
        "attention_pattern": tuple(pattern) or None,
        "moe.latent": config.number("routed_expert_hidden_size"),
        "moe.groups": config.number("num_expert_group"),
        "position": "none" if config.flag("mla_use_nope") else "rope",
        "attention_gate": bool(config.flag("mla_use_output_gate")),
        "other_parameters": other,
    }


def mamba_hybrid(config: Config) -> dict[str, Any]:
    """Mamba-2 or attention in each layer, and an MLP or experts in all (Bamba, Granite 4)."""
    layers = whole_of(config, "num_hidden_layers")
    pattern = kinds_of(config, {"mamba": "linear", "linear_attention": "linear", "attention": "full"})
    places = config.values.get("attn_layer_indices")
    if isinstance(places, list):
        pattern = ["full" if layer in places else "linear" for layer in range(layers)]
    pattern = pattern or ["linear" if config.number("mamba_n_heads") else "full"] * layers
    fields: dict[str, Any] = {"attention_pattern": tuple(pattern)}
    if "linear" in pattern:
        fields["linear"] = _mamba2(config)
    if shared := config.number("shared_intermediate_size"):
        experts = config.number("num_local_experts")
        wide = {"moe.shared_experts": 1, "moe.shared_feed_forward": shared}
        fields |= wide if experts else {"feed_forward": shared, "moe.experts": 0}
    return fields


def _mamba2(config: Config) -> dict[str, Any]:
    """The Mamba-2 mixer of a hybrid, keys with and without the prefix ``mamba_``."""
    linear = {
        "heads": config.number("mamba_n_heads", "num_heads"),
        "value_dim": config.number("mamba_d_head", "head_dim"),
        "key_heads": config.number("mamba_n_groups", "n_groups"),
        "key_dim": config.number("mamba_d_state", "state_size"),
        "convolution": config.number("mamba_d_conv", "conv_kernel"),
        "convolution_bias": config.flag("mamba_conv_bias", "use_conv_bias"),
        "chunk": config.number("mamba_chunk_size", "chunk_size"),
        "head_parameters": 3,
        "norm_per_head": False,
    }
    return present(linear)


def mamba2(config: Config) -> dict[str, Any]:
    """Mamba-2 in every layer, without MLPs."""
    hidden = config.number("hidden_size")
    return {
        "heads": config.number("num_heads"),
        "kv_heads": config.number("num_heads"),
        "feed_forward": hidden,
        "attention_pattern": ("linear",),
        "mlp_pattern": (False,),
        "linear": _mamba2(config),
    }


def falcon_h1(config: Config) -> dict[str, Any]:
    """Attention and Mamba-2 side by side in each layer; the latter has no ops here."""
    hidden, layers = whole_of(config, "hidden_size"), whole_of(config, "num_hidden_layers")
    inner, heads = whole_of(config, "mamba_d_ssm"), whole_of(config, "mamba_n_heads")
    channels = inner + 2 * whole_of(config, "mamba_n_groups", 1) * whole_of(config, "mamba_d_state")
    convolution = channels * (whole_of(config, "mamba_d_conv", 4) + bool(config.flag("mamba_conv_bias")))
    norm = inner if config.flag("mamba_rms_norm") else 0
    each = hidden * (2 * inner + channels + heads - inner) + convolution + inner * hidden + 3 * heads + norm
    return {"other_parameters": layers * each}


def jamba(config: Config) -> dict[str, Any]:
    """Mamba-1 with attention in every eighth layer, experts in every second."""
    hidden, layers = whole_of(config, "hidden_size"), whole_of(config, "num_hidden_layers")
    period, offset = whole_of(config, "attn_layer_period", 8), whole_of(config, "attn_layer_offset", 4)
    pattern = ["full" if layer % period == offset else "linear" for layer in range(layers)]
    inner, state = hidden * whole_of(config, "mamba_expand", 2), whole_of(config, "mamba_d_state", 16)
    rank = config.number("mamba_dt_rank") or -(-hidden // 16)
    places = whole_of(config, "expert_layer_period", 2), whole_of(config, "expert_layer_offset", 1)
    if places[1] != places[0] - 1:
        raise InputError("expert_layer_offset: only the last layer of each period is read", config.where)
    linear, other = _mamba1(config, inner, state, rank)
    return {
        "linear": linear,
        "attention_pattern": tuple(pattern),
        "moe.every": places[0],
        "moe.first_dense_layers": 0,
        "other_parameters": max(pattern.count("linear") * (other + rank + 2 * state), 0),
    }


def _mamba1(config: Config, inner: int, state: int, rank: int) -> tuple[dict[str, Any], int]:
    """Mamba-1 as Mamba-2 with a state of the same size, and the parameters of a layer that this lacks."""
    hidden, width = whole_of(config, "hidden_size"), 16
    heads = inner // width
    convolution = config.number("mamba_d_conv", "conv_kernel") or 4
    linear = {
        "heads": heads,
        "value_dim": width,
        "key_heads": 1,
        "key_dim": state,
        "convolution": convolution,
        "convolution_bias": config.flag("mamba_conv_bias", "use_conv_bias"),
        "head_parameters": 3,
    }
    steps = inner * (rank + 2 * state) + rank * inner + inner * (state + 2)
    modelled = hidden * (heads + 2 * state) + 2 * state * convolution + 3 * heads + width
    return present(linear), steps - modelled


def mamba1(config: Config) -> dict[str, Any]:
    """Mamba-1 in every layer, without MLPs (Mamba, Falcon-Mamba)."""
    hidden, layers = whole_of(config, "hidden_size"), whole_of(config, "num_hidden_layers")
    inner = config.number("intermediate_size") or hidden * whole_of(config, "expand", 2)
    rank = config.values.get("time_step_rank")
    rank = rank if isinstance(rank, int) else -(-hidden // 16)
    linear, other = _mamba1(config, inner, whole_of(config, "state_size", 16), rank)
    return {
        **_without_attention(linear),
        "feed_forward": inner,
        "mlp_pattern": (False,),
        "other_parameters": max(layers * other, 0),
    }


def _without_attention(linear: dict[str, Any]) -> dict[str, Any]:
    """Fields of a model whose every layer has a mixer with a state."""
    return {"heads": linear["heads"], "attention_pattern": ("linear",), "linear": linear}


def xlstm(config: Config) -> dict[str, Any]:
    """xLSTM 7B: matrix memories with gates of heads, gated MLPs (Beck et al., arXiv 2503.13427)."""
    hidden, heads = whole_of(config, "hidden_size"), max(whole_of(config, "num_heads", 8), 1)
    unit = max(whole_of(config, "ffn_round_up_to_multiple_of", 64), 1)
    linear = {
        "heads": heads,
        "value_dim": int(hidden * _ratio(config.values.get("v_dim_factor"))) // heads,
        "key_heads": heads,
        "key_dim": int(hidden * _ratio(config.values.get("qk_dim_factor"))) // heads,
        "convolution": 1,
        "head_gates": 2,
        "norm_per_head": False,
        "chunk": config.number("chunk_size"),
    }
    width = -(-int(hidden * _ratio(config.values.get("ffn_proj_factor"))) // unit) * unit
    return {**_without_attention(present(linear)), "feed_forward": width}


def rwkv(config: Config) -> dict[str, Any]:
    """RWKV-4: a state of two values a channel, without scalars of heads.

    The gate of an MLP is a product of half a hidden width more of it; here scalars of heads are half of that.
    """
    hidden, layers = whole_of(config, "hidden_size"), whole_of(config, "num_hidden_layers")
    width = config.number("attention_hidden_size") or hidden
    linear = {"heads": width // 2, "value_dim": 2, "key_heads": width // 2, "key_dim": 1, "convolution": 1}
    # A key of half a width and a query of the other stand for the key of a channel.
    linear |= {"norm_per_head": False, "head_parameters": 2}
    inner = config.number("intermediate_size") or 4 * hidden
    fields = {**_without_attention(linear), "feed_forward": inner + hidden // 4}
    return fields | {"heads": 1, "other_parameters": layers * 5 * hidden}


def recurrent_gemma(config: Config) -> dict[str, Any]:
    """RG-LRU, a state of one value a channel, and attention to a window (Griffin, arXiv 2402.19427)."""
    hidden, layers = whole_of(config, "hidden_size"), whole_of(config, "num_hidden_layers")
    width, heads = config.number("lru_width") or hidden, whole_of(config, "num_attention_heads")
    kinds = config.values.get("block_types")
    kinds = kinds if isinstance(kinds, list) and kinds else ["recurrent", "recurrent", "attention"]
    pattern = tuple("linear" if kind == "recurrent" else "sliding" for kind in kinds)
    recurrent = sum(pattern[layer % len(pattern)] == "linear" for layer in range(layers))
    linear = {"heads": heads, "value_dim": width // max(heads, 1), "key_heads": 1, "key_dim": 1}
    linear |= {"convolution": config.number("conv1d_width"), "convolution_bias": True}
    return {
        "linear": present(linear),
        "attention_pattern": pattern,
        "sliding_window": whole_of(config, "attention_window_size", 2048),
        "max_sequence": 8192,  # trained on; the state has no bound
        "feed_forward": whole_of(config, "intermediate_size") // 2,
        # Gates of the recurrence, whose blocks are those of heads, and biases.
        "other_parameters": recurrent * (2 * width * width // max(heads, 1) + 5 * width + hidden),
    }


def lfm2(config: Config) -> dict[str, Any]:
    """Short convolutions with attention in some layers."""
    layers, hidden = whole_of(config, "num_hidden_layers"), whole_of(config, "hidden_size")
    pattern = kinds_of(config, {"conv": "none", "sliding_attention": "sliding"})
    places = config.values.get("full_attn_idxs")
    if not pattern and isinstance(places, list):
        pattern = ["full" if layer in places else "none" for layer in range(layers)]
    width = config.number("intermediate_size", "block_ff_dim")
    if width and config.flag("block_auto_adjust_ff_dim"):
        size = int(2 * width / 3)
        multiple = whole_of(config, "block_multiple_of", 256)
        width = -(-int(size * _ratio(config.values.get("block_ffn_dim_multiplier"))) // multiple) * multiple
    convolution = hidden * (4 * hidden + whole_of(config, "conv_L_cache", 3)) + hidden
    gates = hidden * whole_of(config, "num_attention_heads") if config.flag("use_attention_gate") else 0
    return {
        "feed_forward": width,
        "attention_pattern": tuple(pattern) or None,
        "moe.first_dense_layers": config.number("num_dense_layers"),
        "other_parameters": pattern.count("none") * convolution + (layers - pattern.count("none")) * gates,
    }


def _ratio(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 1.0


def minimax(config: Config) -> dict[str, Any]:
    """Lightning attention between layers of full attention."""
    pattern = pattern_of(config, "attn_type_list", {0: "linear", 1: "full"})
    pattern = pattern or kinds_of(config, {"linear_attention": "linear"})
    if "linear" not in pattern:
        return {}
    heads, width = config.number("num_attention_heads"), config.number("head_dim")
    width = width or (whole_of(config, "hidden_size") // max(heads or 1, 1))
    linear = {"heads": heads, "value_dim": width, "key_heads": heads, "key_dim": width, "convolution": 1}
    linear |= {"head_parameters": 0, "norm_per_head": False, "chunk": config.number("block_size")}
    return {"attention_pattern": tuple(pattern), "linear": present(linear)}
