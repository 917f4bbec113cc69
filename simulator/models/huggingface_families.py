"""Rules of a ``config.json`` for families whose layers differ in heads, widths or caches.

Parts without ops (compressors, hyper-connections, embeddings of each layer) are counted in
``other_parameters``: they take memory, and no time; ``UNPRICED`` names them. Shapes are those of
transformers 5.24 and of the released code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.errors import InputError
from simulator.models.huggingface_decoders import (
    axk2,
    cpmant,
    doge,
    hy_v4,
    inkling,
    jetmoe,
    minicpmv,
    mllama,
    zaya,
)
from simulator.models.huggingface_encoders import (
    bart,
    bert,
    modernbert,
    modernbert_decoder,
    prophetnet,
    t5,
    vit,
    whisper,
    xlnet,
)
from simulator.models.huggingface_hybrids import (
    falcon_h1,
    jamba,
    kimi_linear,
    lfm2,
    mamba1,
    mamba2,
    mamba_hybrid,
    minimax,
    recurrent_gemma,
    rwkv,
    xlstm,
)
from simulator.models.huggingface_rules import Config, pattern_of, whole_of

ENCODERS = "pooling and the heads of tasks; no constant was chosen on an encoder"
DECODERS = "no constant was chosen on an encoder, or on attention to one"
BARTS = "bart", "mbart", "pegasus", "marian", "blenderbot", "blenderbot-small", "m2m_100", "plbart", "mvp"
BERTS = "bert", "roberta", "xlm-roberta", "camembert", "bert-generation", "big_bird", "data2vec-text"
BERTS += "electra", "ernie", "megatron-bert", "rembert", "roberta-prelayernorm", "roc_bert", "roformer"
BERTS += "xlm-roberta-xl", "xmod"
BLOCKS = "attention is priced over all keys, not over blocks of them"
MAMBA_1 = "Mamba-1 scans are priced as Mamba-2 with a state of the same size"
UNPRICED: Mapping[str, str] = {
    "deepseek_v4": "compressors of keys and hyper-connections take memory, not time; attention is priced "
    "over the window and the chosen keys",
    "gemma4_text": "embeddings of each layer take memory, not time",
    "minimax_m3": "attention is priced over all keys, not over the blocks that an indexer chooses",
    "kimi_linear": "gates of residuals over blocks of layers are not priced",
    "falcon_h1": "the state-space half of each layer takes memory, not time",
    "lfm2": "short convolutions take memory, not time",
    "jamba": MAMBA_1,
    "mamba": MAMBA_1,
    "rwkv": "scans are priced as Mamba-2 with a state of two values a channel",
    "recurrent_gemma": "gates of the recurrence take memory, not time; scans are priced as Mamba-2",
    "xlstm": "matrix memories are priced as Mamba-2 with a state of the same size",
    "gemma3n_text": "streams of residuals, low-rank residuals and embeddings of each layer take memory, not "
    "time; MLPs are priced without their predicted sparsity, which engines compute densely",
    "jetmoe": "experts of attention that a token does not visit take memory; their router takes no time",
    "hy_v4": "hyper-connections take memory, not time; the indexer is priced in every layer",
    "inkling_text": "relative positions and short convolutions take memory, not time",
    "zaya": "convolutions over queries and keys, and layers of routers, take memory, not time",
    "axk2": "gates of queries and of norms take memory, not time",
    "mllama": "layers that attend to a picture take memory, not time",
    "doge": "attention is priced over all keys, not over those that its mask keeps",
    "xlnet": f"relative positions take memory, not time; {ENCODERS}",
    "xlm": ENCODERS,
    "prophetnet": f"streams of further tokens are not priced; {DECODERS}",
    "bert": ENCODERS,
    "modernbert": ENCODERS,
    "vit": f"the cut into patches, {ENCODERS}",
    "t5": f"biases of distances in attention; {DECODERS}",
    "bart": DECODERS,
    "whisper": f"the convolutions over sound, and {DECODERS}",
    "distilbert": ENCODERS,
    "longcat_flash": "experts that compute nothing are left out of the experts of a token in the mean",
    "xmod": f"adapters of languages take memory, not time; {ENCODERS}",
    "big_bird": f"{BLOCKS}; {ENCODERS}",
    "bigbird_pegasus": f"{BLOCKS}; {DECODERS}",
}
"""What the predictions of a family leave out, in words for the user. Of types with one rule, the first listed
stands for those that are not."""


def deepseek_v4(config: Config) -> dict[str, Any]:
    """Queries and outputs of low rank, one key that is also the value, one cache entry for 4 or 128 tokens.

    Each layer keeps a window beside these entries (transformers, modeling_deepseek_v4.py).
    """
    layers, hidden, width = (
        whole_of(config, key) for key in ("num_hidden_layers", "hidden_size", "head_dim")
    )
    ratios = _ratios(config)[:layers]
    index, heads = whole_of(config, "index_head_dim", 128), whole_of(config, "index_n_heads", 64)
    rank, lanes = whole_of(config, "q_lora_rank"), whole_of(config, "hc_mult", 1)
    mixed = lanes * (2 + lanes)
    other = layers * (
        2 * (mixed * (lanes * hidden + 1) + 3) + rank + width + whole_of(config, "num_attention_heads")
    )
    other += lanes * (lanes * hidden + 1) + 1
    for ratio in ratios:
        if ratio == 0:
            continue
        overlap = 2 if ratio < 16 else 1
        other += overlap * width * (2 * hidden + ratio) + width
        if overlap == 2:
            other += 2 * index * (2 * hidden + ratio) + index + rank * heads * index + hidden * heads
    nonzero_ratios = [ratio for ratio in ratios if ratio]
    window = whole_of(config, "sliding_window", 128)
    return {
        "kv_heads": 1,
        "head_dim": width,
        "shared_values": True,
        "query_rank": rank,
        "output_rank": whole_of(config, "o_lora_rank"),
        "output_groups": whole_of(config, "o_groups", 1),
        "feed_forward": whole_of(config, "moe_intermediate_size"),
        "sliding_window": window + whole_of(config, "index_topk", 512),
        "attention_pattern": ("sliding",),
        "attention_sinks": True,
        # One entry serves as key and value; a layer without compression keeps its window only.
        "kv_share": max(0.5 * sum(1 / ratio for ratio in nonzero_ratios) / max(layers, 1), 1e-6),
        "cache_extra": sum(index / ratio for ratio in nonzero_ratios if ratio < 16) / max(layers, 1),
        "other_parameters": other,
    }


def _ratios(config: Config) -> list[int]:
    listed = config.values.get("compress_ratios")
    if isinstance(listed, list) and all(type(ratio) is int and 0 <= ratio <= 4096 for ratio in listed):
        return listed
    rates = config.inner("compress_rates")
    kinds = config.values.get("layer_types")
    if not isinstance(kinds, list):
        raise InputError("compress_ratios: a list with a number for each layer is needed", config.where)
    return [rates.number(str(kind)) or 0 for kind in kinds]


def gemma4(config: Config) -> dict[str, Any]:
    """Full layers with wider heads, values that are keys, MLPs beside experts, embeddings of each layer."""
    layers, hidden = whole_of(config, "num_hidden_layers"), whole_of(config, "hidden_size")
    heads, kv_heads = whole_of(config, "num_attention_heads"), whole_of(config, "num_key_value_heads")
    narrow, each = whole_of(config, "head_dim", 256), config.inner("per_layer_config")
    layer_widths = [each.inner(key).number("head_dim") for key in each.values]
    wide = config.number("global_head_dim") or max((width for width in layer_widths if width), default=narrow)
    width = whole_of(config, "hidden_size_per_layer_input")
    rows = whole_of(config, "vocab_size_per_layer_input") or whole_of(config, "vocab_size")
    other = layers * (width * rows + 3 * width * hidden + hidden) + width if width else 0
    fields: dict[str, Any] = {
        "kv_heads": config.number("num_global_key_value_heads") or kv_heads,
        "head_dim": wide,
        "shared_values": bool(config.flag("attention_k_eq_v")),
        "sliding_attention": {"heads": heads, "kv_heads": kv_heads, "head_dim": narrow},
        "shared_kv_layers": whole_of(config, "num_kv_shared_layers"),
        "other_parameters": other,
    }
    if config.flag("use_double_wide_mlp") and fields["shared_kv_layers"]:
        mlp, shared = whole_of(config, "intermediate_size"), fields["shared_kv_layers"]
        fields["feed_forwards"] = (mlp,) * (layers - shared) + (2 * mlp,) * shared
    if config.flag("enable_moe_block") and config.number("num_experts"):
        fields |= {
            "moe.top_k": config.number("top_k_experts"),
            "moe.feed_forward": config.number("moe_intermediate_size", "expert_intermediate_size"),
            "moe.shared_experts": 1,
            "moe.shared_feed_forward": config.number("intermediate_size"),
        }
        fields["other_parameters"] += layers * (3 * hidden + whole_of(config, "num_experts"))
        return fields
    return fields | {"moe.experts": 0}


def gemma3n(config: Config) -> dict[str, Any]:
    """Gemma 4's embeddings of each layer, streams of residuals (AltUp), residuals of low rank (LAuReL)."""
    fields, layers = gemma4(config), whole_of(config, "num_hidden_layers")
    hidden, rank = whole_of(config, "hidden_size"), whole_of(config, "laurel_rank")
    lanes, widths = whole_of(config, "altup_num_inputs", 1), config.values.get("intermediate_size")
    lane_parameters = lanes * lanes * (1 + lanes) + (lanes + 2) * hidden
    fields["other_parameters"] += layers * (lane_parameters + hidden * (2 * rank + 1))
    fields["other_parameters"] += 2 * (lanes - 1) * hidden * hidden
    if isinstance(widths, list) and widths and all(type(width) is int for width in widths):
        uneven = {"feed_forwards": tuple(widths)} if len(set(widths)) > 1 else {}
        return fields | {"feed_forward": max(widths)} | uneven
    return fields | {"feed_forward": config.number("intermediate_size")}


def minimax_m3(config: Config) -> dict[str, Any]:
    """Grouped queries whose keys an indexer of a few heads chooses by blocks."""
    hidden, layers = whole_of(config, "hidden_size"), whole_of(config, "num_hidden_layers")
    sparse, listed = config.inner("sparse_attention_config"), config.values.get("layer_types")
    sparse_flags = sparse.values.get("sparse_attention_freq")
    if isinstance(sparse_flags, list):
        count = sum(flag == 1 for flag in sparse_flags)
    else:
        kinds = listed if isinstance(listed, list) else []
        count = sum("sparse" in str(kind) or "indexed" in str(kind) for kind in kinds)
    heads = sparse.number("sparse_num_index_heads") or whole_of(config, "index_n_heads", 4)
    width = sparse.number("sparse_index_dim") or whole_of(config, "index_head_dim", 128)
    return {
        "feed_forward": config.number("dense_intermediate_size", "intermediate_size"),
        "moe.feed_forward": config.number("moe_intermediate_size", "intermediate_size"),
        "moe.shared_experts": 1,
        "moe.shared_feed_forward": config.number("shared_intermediate_size", "intermediate_size"),
        "qk_norm": True,
        "attention_pattern": ("full",),
        "cache_extra": count * width / layers if layers else 0.0,
        "other_parameters": count * (hidden * width * (heads + 1) + 2 * width),
    }


def mimo_v2(config: Config) -> dict[str, Any]:
    """Sliding layers with more heads of keys, and values narrower than keys."""
    heads, kv_heads = whole_of(config, "num_attention_heads"), whole_of(config, "num_key_value_heads")
    width, value = whole_of(config, "head_dim"), whole_of(config, "v_head_dim")
    fields: dict[str, Any] = {
        "value_dim": value,
        "sliding_attention": {
            "heads": config.number("swa_num_attention_heads") or heads,
            "kv_heads": config.number("swa_num_key_value_heads") or 2 * kv_heads,
            "head_dim": config.number("swa_head_dim") or width,
            "value_dim": config.number("swa_v_head_dim") or value,
        },
    }
    if pattern := pattern_of(config, "hybrid_layer_pattern", {0: "full", 1: "sliding"}):
        fields["attention_pattern"] = tuple(pattern)
    return fields


def step3p5(config: Config) -> dict[str, Any]:
    """Sliding layers with more query heads, a shared expert, gates of heads."""
    hidden, layers = whole_of(config, "hidden_size"), whole_of(config, "num_hidden_layers")
    heads = whole_of(config, "num_attention_heads")
    other = config.inner("attention_other_setting")
    groups = config.number("num_attention_groups", "num_key_value_heads")
    width = config.number("head_dim")
    fields: dict[str, Any] = {
        "kv_heads": groups,
        "moe.experts": config.number("moe_num_experts", "num_experts"),
        "moe.top_k": config.number("moe_top_k", "num_experts_per_tok"),
        "moe.shared_experts": 1,
        "moe.shared_feed_forward": config.number(
            "share_expert_dim", "share_expert_dims", "moe_intermediate_size"
        ),
        "qk_norm": True,
        "norms_per_layer": 2,
    }
    if (wide := other.number("num_attention_heads")) and groups and width:
        shape = {"heads": wide, "kv_heads": other.number("num_attention_groups") or groups, "head_dim": width}
        fields["sliding_attention"] = shape
    if isinstance(listed := config.values.get("moe_layers_enum"), str) and listed:
        fields["moe.first_dense_layers"] = int(listed.split(",")[0])
    if config.flag("use_head_wise_attn_gate"):
        fields["other_parameters"] = layers * hidden * heads
    return fields


def nemotron_nas(config: Config) -> dict[str, Any]:
    """Layers without attention or MLP and MLPs of several widths, as a search chose them (Puzzle).

    Raises:
        InputError: blocks that are replaced by linear layers, or differ in the heads of keys.
    """
    blocks, hidden = config.values.get("block_configs"), whole_of(config, "hidden_size")
    heads = whole_of(config, "num_attention_heads")
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        raise InputError("block_configs: a list with an entry for each layer is needed", config.where)
    mixers, mlps, widths, groups = [], [], [], set()
    for index, block in enumerate(blocks):
        part = Config(block, f"{config.where}: block_configs[{index}]")
        attention, mlp = part.inner("attention"), part.inner("ffn")
        if attention.flag("replace_with_linear") or mlp.flag("replace_with_linear"):
            raise InputError("blocks that linear layers replace are not supported", part.where)
        if attention.flag("no_op") and mlp.flag("no_op"):
            continue
        mixers.append("none" if attention.flag("no_op") else "full")
        mlps.append(not mlp.flag("no_op"))
        if mixers[-1] == "full":
            groups.add(attention.number("n_heads_in_group"))
        widths.append(_width_of(mlp.values.get("ffn_mult"), hidden) if mlps[-1] else 1)
    if len(groups) != 1 or None in groups:
        raise InputError("block_configs: layers that differ in heads of keys are not supported", config.where)
    return {
        "layers": len(mixers),
        "kv_heads": heads // max(next(iter(groups)) or 1, 1),
        "feed_forward": max(widths),
        "feed_forwards": tuple(widths),
        "attention_pattern": tuple(mixers),
        "mlp_pattern": tuple(mlps),
    }


def _width_of(multiple: object, hidden: int) -> int:
    """Inner width that a multiple means: two thirds of it, up to a multiple of 256 (modeling_decilm.py)."""
    size = int(2 * float(multiple) * hidden / 3) if isinstance(multiple, int | float) else hidden
    return -(-size // 256) * 256


def longcat_flash(config: Config) -> dict[str, Any]:
    """Two blocks of attention and dense MLP a layer; a third of the experts beside them compute nothing."""
    layers = whole_of(config, "num_layers") or whole_of(config, "num_hidden_layers")
    experts, zero = whole_of(config, "n_routed_experts"), whole_of(config, "zero_expert_num")
    top_k = whole_of(config, "moe_topk") * experts // max(experts + zero, 1)
    return {
        "layers": 2 * layers,
        "feed_forward": config.number("ffn_hidden_size"),
        "moe.experts": experts,
        "moe.top_k": max(top_k, 1),
        "moe.feed_forward": config.number("expert_ffn_hidden_size"),
        "moe.shared_experts": 1,
        "moe.shared_feed_forward": config.number("ffn_hidden_size"),
        "moe.every": 2,
        "other_parameters": layers * zero * whole_of(config, "hidden_size"),
    }


FAMILY_RULES: Mapping[str, Callable[[Config], dict[str, Any]]] = {
    "deepseek_v4": deepseek_v4,
    "deepseek_ref": deepseek_v4,
    "gemma4_text": gemma4,
    "gemma4": gemma4,
    "gemma4_unified_text": gemma4,
    "minimax": minimax,
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"), minimax_m3),
    **dict.fromkeys(("kimi_linear", "kimi_k3", "bailing_hybrid"), kimi_linear),
    "mimo_v2_flash": mimo_v2,
    **dict.fromkeys(("step3p5", "step3p7"), step3p5),
    "nemotron-nas": nemotron_nas,
    **dict.fromkeys(("granitemoehybrid", "bamba", "granitemoeshared"), mamba_hybrid),
    "mamba2": mamba2,
    "falcon_h1": falcon_h1,
    "jamba": jamba,
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm3"), lfm2),
    "longcat_flash": longcat_flash,
    **dict.fromkeys(("gemma3n", "gemma3n_text"), gemma3n),
    "axk2": axk2,
    "hy_v4": hy_v4,
    **dict.fromkeys(("inkling_text", "inkling2_text"), inkling),
    **dict.fromkeys(("minicpmv", "minicpmo"), minicpmv),
    "zaya": zaya,
    "doge": doge,
    "jetmoe": jetmoe,
    "cpmant": cpmant,
    **dict.fromkeys(("mamba", "falcon_mamba"), mamba1),
    "recurrent_gemma": recurrent_gemma,
    "rwkv": rwkv,
    "xlstm": xlstm,
    **dict.fromkeys(BERTS, bert),
    "xlm": lambda _: {},
    "xlnet": xlnet,
    "modernbert": modernbert,
    "modernbert-decoder": modernbert_decoder,
    **dict.fromkeys(("vit", "deit"), vit),
    **dict.fromkeys(("t5", "mt5", "umt5"), t5),
    **dict.fromkeys((*BARTS, "bigbird_pegasus"), bart),
    "prophetnet": prophetnet,
    **dict.fromkeys(("mllama", "mllama_text_model"), mllama),
    "moshi": lambda config: {"feed_forward": whole_of(config, "ffn_dim") // 2},
    "whisper": whisper,
}
"""Rules by model_type."""


def unpriced(names: Sequence[str]) -> str:
    """What the predictions of a model_type leave out; empty where nothing is."""
    for name in names:
        if name in UNPRICED:
            return UNPRICED[name]
        rule = FAMILY_RULES.get(name)
        for listed, words in UNPRICED.items():
            if rule is not None and rule is FAMILY_RULES.get(listed):
                return words
    return ""
