"""Rules of a ``config.json`` that a table cannot express: one function per model_type (``OWN_RULES``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from core.errors import InputError, shown


class Config(NamedTuple):
    """A parsed ``config.json`` and where it lies."""

    values: Mapping[str, object]
    where: str

    def number(self, *keys: str) -> int | None:
        """The first key that is present, as an integer; None without any.

        Raises:
            InputError: it is something else.
        """
        return self._first(keys, int, "a whole number")

    def flag(self, *keys: str) -> bool | None:
        """The first key that is present, as a boolean; None without any.

        Raises:
            InputError: it is something else.
        """
        return self._first(keys, bool, "true or false")

    def _first(self, keys: tuple[str, ...], kind: type, needed: str) -> Any:
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if type(value) is not kind:  # A boolean is an int too.
                raise InputError(f"{key}: {needed} is needed, found {shown(value)}", self.where)
            return value
        return None

    def inner(self, key: str) -> Config:
        """A nested mapping; empty if the key is absent."""
        part = self.values.get(key)
        return Config(part if isinstance(part, Mapping) else {}, f"{self.where}: {key}")


def whole_of(config: Config, key: str, default: int = 0) -> int:
    """The whole number of a key, or the default where the file lacks it.

    Raises:
        InputError: no whole number.
    """
    value = config.number(key)
    return default if value is None else value


def index_share(config: Config, layers: int) -> float:
    """Share of the layers with an indexer of their own (transformers, configuration_glm_moe_dsa.py)."""
    listed = config.values.get("indexer_types") or config.values.get("index_topk_pattern")
    if isinstance(listed, list | str) and listed:
        has_own = [kind in ("F", "full") for kind in listed]
    else:
        every = max(whole_of(config, "index_topk_freq", 1), 1)
        first = whole_of(config, "index_skip_topk_offset", 2)
        has_own = [max(layer - first + 1, 0) % every == 0 for layer in range(layers)]
    return max(sum(has_own), 1) / max(len(has_own), 1)


def kinds_of(config: Config, names: Mapping[str, str]) -> list[str]:
    """Our kinds of the entries of ``layer_types``; empty without it."""
    listed = config.values.get("layer_types")
    return [names.get(str(kind), "full") for kind in listed] if isinstance(listed, list) else []


def pattern_of(config: Config, key: str, kinds: Mapping[int, str]) -> list[str]:
    """Our kinds of a list of numbers, one a layer.

    Raises:
        InputError: another number.
    """
    listed = config.values.get(key)
    if not isinstance(listed, list) or not listed:
        return []
    if any(type(number) is not int or number not in kinds for number in listed):
        raise InputError(f"{key}: only {', '.join(map(str, kinds))} are read", config.where)
    return [kinds[number] for number in listed]


def _falcon(config: Config) -> dict[str, Any]:
    new = bool(config.flag("new_decoder_architecture"))
    kv_heads = config.number("num_kv_heads", "n_head_kv") if new else None
    if not new and config.flag("multi_query") is not False:
        kv_heads = 1
    parallel = config.flag("parallel_attn") is not False
    one_norm = parallel and (not new or config.number("num_ln_in_parallel_attn") == 1)
    position = "alibi" if config.flag("alibi") else "rope"
    return {"kv_heads": kv_heads, "norms_per_layer": 1 if one_norm else 2, "position": position}


def _mpt(config: Config) -> dict[str, Any]:
    attention = config.inner("attn_config")
    kv_heads = attention.number("kv_n_heads")
    if attention.values.get("attn_type") == "multiquery_attention":
        kv_heads = 1
    hidden, ratio = config.number("d_model"), config.number("expansion_ratio")
    return {
        "kv_heads": kv_heads,
        "position": "alibi" if attention.flag("alibi") else "learned",
        "bias": config.flag("no_bias") is False,
        "feed_forward": hidden * ratio if hidden and ratio else None,
    }


def _dbrx(config: Config) -> dict[str, Any]:
    attention, experts = config.inner("attn_config"), config.inner("ffn_config")
    return {
        "kv_heads": attention.number("kv_n_heads"),
        "feed_forward": experts.number("ffn_hidden_size"),
        "moe.experts": experts.number("moe_num_experts"),
        "moe.top_k": experts.number("moe_top_k"),
    }


def _gpt_bigcode(config: Config) -> dict[str, Any]:
    return {"kv_heads": 1 if config.flag("multi_query") is not False else None}


def _opt(config: Config) -> dict[str, Any]:
    """OPT; that of 350M has products around its layers, between two widths."""
    width, hidden = config.number("word_embed_proj_dim"), whole_of(config, "hidden_size")
    if width is None or width == hidden:
        return {}
    positions = (hidden - width) * whole_of(config, "max_position_embeddings")
    return {"embedding_width": width, "other_parameters": max(positions + 2 * hidden * width, 0)}


def _qwen3_next(config: Config) -> dict[str, Any]:
    """Gated DeltaNet (transformers, Qwen3NextGatedDeltaNet); every n-th layer has gated full attention."""
    interval = config.number("full_attention_interval") or 4
    linear = {
        "heads": config.number("linear_num_value_heads"),
        "value_dim": config.number("linear_value_head_dim"),
        "key_heads": config.number("linear_num_key_heads"),
        "key_dim": config.number("linear_key_head_dim"),
        "convolution": config.number("linear_conv_kernel_dim"),
        "head_gates": 2,
        "delta": True,
    }
    fields: dict[str, Any] = {"linear": present(linear), "attention_gate": True}
    if not isinstance(config.values.get("layer_types"), list):
        fields["attention_pattern"] = ("linear",) * (interval - 1) + ("full",)
    if config.number("shared_expert_intermediate_size"):
        fields["moe.shared_experts"] = 1
    return fields


def _olmo_hybrid(config: Config) -> dict[str, Any]:
    """Gated DeltaNet beside full attention without an output gate."""
    return {**_qwen3_next(config), "attention_gate": False}


PATTERN_OF_PARTS = {"M": ("linear", False), "*": ("full", False), "-": ("none", True), "E": ("none", True)}
LETTERS = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}
"""Letter of each kind of layer in ``layers_block_type``."""


def _nemotron_h(config: Config) -> dict[str, Any]:
    """Mamba-2, attention, an MLP or experts in each layer, as ``hybrid_override_pattern`` says.

    Raises:
        InputError: no pattern, or an unknown kind of layer.
    """
    listed = config.values.get("layers_block_type")
    pattern = list(str(config.values.get("hybrid_override_pattern") or ""))
    if not pattern and isinstance(listed, list):
        pattern = [LETTERS.get(str(part), str(part)) for part in listed]
    unknown = [part for part in pattern if part not in PATTERN_OF_PARTS]
    if unknown or not pattern:
        offending = shown(unknown[0]) if unknown else "nothing"
        problem = f"hybrid_override_pattern: expected M, *, - and E, found {offending}"
        raise InputError(problem, config.where)
    places = tuple(layer for layer, part in enumerate(pattern) if part == "E") if "-" in pattern else ()
    parts = [PATTERN_OF_PARTS[part] for part in pattern]
    linear = {
        "heads": config.number("mamba_num_heads"),
        "value_dim": config.number("mamba_head_dim"),
        "key_heads": config.number("n_groups", "mamba_n_groups"),
        "key_dim": config.number("ssm_state_size"),
        "convolution": config.number("conv_kernel"),
        "convolution_bias": config.flag("use_conv_bias"),
        "chunk": config.number("chunk_size"),
        "head_parameters": 3,
        "norm_per_head": False,
    }
    return {
        "layers": len(parts),
        **({} if "E" in pattern else {"moe.experts": None}),
        **({"moe.places": places} if places else {}),
        "attention_pattern": tuple(mixer for mixer, _ in parts),
        "mlp_pattern": tuple(has_mlp for _, has_mlp in parts),
        "linear": present(linear),
    }


def _hunyuan(config: Config) -> dict[str, Any]:
    """Expert counts may be lists with one number per layer.

    Raises:
        InputError: layers that differ.
    """
    keys = {
        "moe.experts": ("num_experts",),
        "moe.top_k": ("moe_topk", "num_experts_per_tok"),
        "moe.feed_forward": ("moe_intermediate_size",),
        "moe.shared_experts": ("num_shared_expert",),
    }
    fields = {field: _equal(config, *names) for field, names in keys.items()}
    if fields["moe.shared_experts"] is None:  # As wide as an MLP (transformers, modular_hunyuan_v1_moe.py).
        fields["moe.shared_experts"] = 1
    return fields if (fields["moe.experts"] or 0) > 1 or "num_shared_expert" not in config.values else {}


def _equal(config: Config, *keys: str) -> int | None:
    """An integer, or the value that all entries of a list share."""
    flat = dict(config.values)
    for key in keys:
        value = flat.get(key)
        if isinstance(value, list) and value:
            if any(part != value[0] for part in value):
                raise InputError(f"{key}: layers that differ are not supported", config.where)
            flat[key] = value[0]
    return config._replace(values=flat).number(*keys)


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a file states."""
    return {field: value for field, value in fields.items() if value is not None}


OWN_RULES: Mapping[str, Callable[[Config], dict[str, Any]]] = {
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "mpt": _mpt,
    "dbrx": _dbrx,
    "gpt_bigcode": _gpt_bigcode,
    "opt": _opt,
    "hunyuan_v1_moe": _hunyuan,
    "qwen3_next": _qwen3_next,
    **dict.fromkeys(("olmo_hybrid", "lara_mini"), _olmo_hybrid),
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _qwen3_next),
    "nemotron_h": _nemotron_h,
}
