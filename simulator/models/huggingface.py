"""Read a Hugging Face ``config.json``: a local file or folder; no network, no transformers.

The spellings live in ``huggingface.yaml``. What a table cannot say (Falcon's and MPT's own
rules for key heads and positions) is a small function per model_type at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hwmodels.errors import InputError, UnknownNameError, shown
from hwmodels.loading import build, exists, read_mapping
from simulator.models.model import Model

TEXT_PARTS = ("text_config", "llm_config", "language_config")
MOST_PERIOD = 1024
"""Layers after which a pattern repeats at the latest."""
NEEDED = ("layers", "hidden", "heads", "feed_forward", "vocabulary")


class Config(NamedTuple):
    """A parsed ``config.json`` and where it lies."""

    values: Mapping[str, object]
    where: str

    def number(self, *keys: str) -> int | None:
        """The first of the keys that is there, as a whole number; None where none is.

        Raises:
            InputError: it is something else.
        """
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"{key}: a whole number is needed, found {shown(value)}", self.where)
            return value
        return None

    def flag(self, *keys: str) -> bool | None:
        """The first of the keys that is there, as true or false; None where none is.

        Raises:
            InputError: it is something else.
        """
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if not isinstance(value, bool):
                raise InputError(f"{key}: true or false is needed, found {shown(value)}", self.where)
            return value
        return None

    def inner(self, key: str) -> Config:
        """A nested part; empty where it is not there."""
        part = self.values.get(key)
        return Config(part if isinstance(part, Mapping) else {}, f"{self.where}: {key}")


def looks_like_config(data: Mapping[str, object]) -> bool:
    """Whether a parsed mapping is a Hugging Face configuration rather than a Model."""
    return "model_type" in data or "architectures" in data or any(part in data for part in TEXT_PARTS)


def config_path(path: Path) -> Path:
    """The ``config.json`` that a path means: the file itself, or the one in a folder.

    Raises:
        InputError: a folder without one.
    """
    if not exists(path) or not path.is_dir():
        return path
    if not (path / "config.json").is_file():
        raise InputError("no config.json in this folder", str(path))
    return path / "config.json"


def read_config(path: Path, data: Mapping[str, object] | None = None) -> Model:
    """Build a Model from a ``config.json``.

    Args:
        path: the file, or the folder it lies in.
        data: its content, where it has been parsed already.

    Raises:
        InputError: unreadable or cut off, a needed key missing or of a wrong type, or an
            architecture that Model cannot describe; with file and key.
    """
    path = config_path(path)
    config = Config(read_mapping(path) if data is None else data, str(path))
    for part in TEXT_PARTS:
        text = config.inner(part)
        if text.values:  # what a multimodal file says outside holds for its text model too
            config = Config({**config.values, **text.values}, text.where)
    _refuse_unsupported(config)
    config = _leading_dense_layers(config)
    model_type = _model_type(config)
    fields = _fields(config, model_type)
    _check_complete(fields, config, model_type)
    fields |= {"name": _name(path), "family": model_type, "source": str(path)}
    if notes := [words for key, words in _tables()["left_out"].items() if config.values.get(key)]:
        fields["left_out"] = "; ".join(notes)
    return build(Model, fields, config.where)


def _name(path: Path) -> str:
    if path.name == "config.json":
        return path.resolve().parent.name or "model"
    return path.stem.removesuffix("_config")


@cache
def _tables() -> dict[str, Any]:
    tables = read_mapping(Path(__file__).with_suffix(".yaml"))
    types = tables["model_types"]
    return tables | {"model_types": types | {old: types[new] for old, new in tables["aliases"].items()}}


def _refuse_unsupported(config: Config) -> None:
    """Say so rather than read an architecture as something that it is not."""
    tables = _tables()
    known = tables["hybrids"].get(str(config.values.get("model_type", "")), ())
    for key, reason in tables["unsupported"].items():
        if config.values.get(key) and key not in known:
            raise InputError(f"{key}: {reason}", config.where)


def _model_type(config: Config) -> str:
    """The listed model_type, from the class of the model where the file does not name it.

    Raises:
        InputError: missing, not listed, or of a kind that Model cannot describe.
    """
    tables = _tables()
    known, named = tables["model_types"], config.values.get("model_type")
    if named is None:
        classes = config.values.get("architectures")
        stem = str(classes[0]).partition("For")[0].lower() if isinstance(classes, list) and classes else ""
        named = next((name for name in known if name.replace("_", "").lower() == stem), None)
    if named is None:
        raise InputError("key 'model_type' is missing", config.where)
    for reason, kinds in tables["refused"].items():
        if named in kinds:
            raise InputError(f"model_type {shown(named)}: {reason}", config.where)
    if not isinstance(named, str) or named not in known:
        listed = ", ".join(sorted(known, key=str.lower))
        problem = f"model_type {shown(named)} is not known; a model YAML can state its shape. Known: {listed}"
        raise InputError(problem, config.where)
    return named


def _fields(config: Config, model_type: str) -> dict[str, Any]:
    """The fields of Model, from the file where it says them, else from its model_type."""
    tables = _tables()
    unsaid = dict(tables["model_types"][model_type])
    gated, expansion = unsaid.pop("gated", False), unsaid.pop("expansion", None)
    own = unsaid.pop("spellings", {})
    found = {"activation": "swiglu" if gated else "gelu"} | unsaid
    for read, table in ((config.number, tables["numbers"]), (config.flag, tables["flags"])):
        values = {field: read(*own.get(field, keys)) for field, keys in table.items()}
        found |= {field: value for field, value in values.items() if value is not None}
    found |= _activation(config, gated, tables)
    found |= _attention_pattern(config, found, tables["layer_types"])
    found |= OWN_RULES.get(model_type, _no_rule)(config)
    found = {field: value for field, value in found.items() if value is not None}
    if expansion and "hidden" in found:
        found.setdefault("feed_forward", expansion * found["hidden"])
    return _nested(found)


def _activation(config: Config, gated: bool, tables: Mapping[str, Any]) -> dict[str, Any]:
    key = next((k for k in tables["activation_keys"] if isinstance(config.values.get(k), str)), None)
    if key is None:
        return {}
    name = str(config.values[key])
    if name not in tables["activations"]:
        raise UnknownNameError("activation", name, tables["activations"], f"{config.where}: {key}")
    plain, with_gate = tables["activations"][name]
    return {"activation": with_gate if gated else plain}


def _attention_pattern(config: Config, found: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Which layers see a window only; without a window, none does."""
    if found.get("sliding_window") is None or config.flag("use_sliding_window") is False:
        window: dict[str, Any] = {"sliding_window": None, "attention_pattern": None}
    else:
        window = {}
    named = config.values.get("layer_types")
    if isinstance(named, list):
        unknown = next((kind for kind in named if not isinstance(kind, str) or kind not in kinds), None)
        if unknown is not None:
            raise UnknownNameError("kind of attention", str(unknown), kinds, f"{config.where}: layer_types")
        pattern = tuple(kinds[kind] for kind in named)
        return {**window, "attention_pattern": pattern} if not window or "linear" in pattern else window
    if not window and (period := _window_period(config)):
        return {"attention_pattern": period}
    full = config.number("max_window_layers")
    if not window and full and config.flag("use_sliding_window") and found.get("layers", 0) > full:
        return {"attention_pattern": ("full",) * full + ("sliding",) * (found["layers"] - full)}
    return window


def _window_period(config: Config) -> tuple[str, ...] | None:
    """Every n-th layer sees all keys (6), or kinds of layers in letters (LLLG: local and global).

    Raises:
        InputError: something else.
    """
    for key in ("sliding_window_pattern", "_sliding_window_pattern"):
        value = config.values.get(key)
        if isinstance(value, str) and value and set(value) <= set("LG"):
            return tuple("sliding" if letter == "L" else "full" for letter in value)
        if isinstance(value, str):
            raise InputError(f"{key}: a number or L and G are needed, found {shown(value)}", config.where)
        period = config.number(key)
        if period is not None and not 1 <= period <= MOST_PERIOD:
            raise InputError(f"{key}: must be from 1 to {MOST_PERIOD:,}, found {period}", config.where)
        if period is not None:
            return ("sliding",) * (period - 1) + ("full",)
    return None


def _leading_dense_layers(config: Config) -> Config:
    """Say lists of dense and expert layers as the number of dense ones at the start.

    Raises:
        InputError: the dense layers are elsewhere, which Model does not describe.
    """
    values = dict(config.values)
    frequency, dense = values.get("moe_layer_freq"), values.get("mlp_only_layers") or []
    if isinstance(frequency, list):
        del values["moe_layer_freq"]
        dense = [layer for layer, has_experts in enumerate(frequency) if not has_experts]
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        raise InputError(
            f"only the first layers may be dense; found dense layers {shown(dense)}", config.where
        )
    if dense:
        values["first_k_dense_replace"] = len(dense)
    return config._replace(values=values)


def _nested(found: Mapping[str, Any]) -> dict[str, Any]:
    """Gather ``moe.`` and ``mla.`` fields, where there are experts and latent attention at all."""
    fields = {field: value for field, value in found.items() if "." not in field}
    parts = {
        part: {f.removeprefix(part + "."): v for f, v in found.items() if f.startswith(part + ".")}
        for part in ("moe", "mla")
    }
    if parts["moe"].get("experts"):
        parts["moe"].setdefault("feed_forward", fields.get("feed_forward"))
        fields.setdefault("feed_forward", parts["moe"]["feed_forward"])
        fields["moe"] = parts["moe"]
    if "kv_lora_rank" in parts["mla"]:
        fields = {f: v for f, v in fields.items() if f not in ("kv_heads", "head_dim")}
        fields["mla"] = parts["mla"]
    return fields


def _check_complete(fields: Mapping[str, Any], config: Config, model_type: str) -> None:
    """Name what is missing in the words of the file."""
    tables = _tables()
    spellings = tables["numbers"] | tables["model_types"][model_type].get("spellings", {})
    lacking = [spellings[f] for f in NEEDED if fields.get(f) is None]
    if lacking:
        listed = ", ".join(keys[0] + (f" (or {', '.join(keys[1:])})" if keys[1:] else "") for keys in lacking)
        raise InputError(f"needed keys are missing: {listed}", config.where)


# What no table can say: one function per model_type.


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


def _minimax(config: Config) -> dict[str, Any]:
    kinds = config.values.get("attn_type_list")
    if isinstance(kinds, list) and 0 in kinds:
        raise InputError("attn_type_list: lightning attention is not supported", config.where)
    return {}


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
    width, hidden = config.number("word_embed_proj_dim"), config.number("hidden_size")
    if width is not None and width != hidden:
        problem = (
            f"word_embed_proj_dim: an embedding narrower than hidden_size is not supported, found {width}"
        )
        raise InputError(problem, config.where)
    return {}


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
    found: dict[str, Any] = {"linear": _given(linear), "attention_gate": True}
    if not isinstance(config.values.get("layer_types"), list):
        found["attention_pattern"] = ("linear",) * (interval - 1) + ("full",)
    if config.number("shared_expert_intermediate_size"):
        found["moe.shared_experts"] = 1
    return found


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
        InputError: no pattern, an unknown kind of layer, or MLPs beside experts.
    """
    listed = config.values.get("layers_block_type")
    pattern = list(str(config.values.get("hybrid_override_pattern") or ""))
    if not pattern and isinstance(listed, list):
        pattern = [LETTERS.get(str(part), str(part)) for part in listed]
    unknown = next((part for part in pattern if part not in PATTERN_OF_PARTS), None)
    if unknown or not pattern:
        problem = f"hybrid_override_pattern: expected M, *, - and E, found {unknown or 'nothing'!r}"
        raise InputError(problem, config.where)
    if "E" in pattern and "-" in pattern:
        raise InputError("MLPs beside experts are not supported", config.where)
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
        "attention_pattern": tuple(mixer for mixer, _ in parts),
        "mlp_pattern": tuple(has_mlp for _, has_mlp in parts),
        "linear": _given(linear),
    }


def _hunyuan(config: Config) -> dict[str, Any]:
    """Numbers of experts may be lists of one for each layer.

    Raises:
        InputError: layers that differ.
    """
    keys = {
        "moe.experts": ("num_experts",),
        "moe.top_k": ("moe_topk", "num_experts_per_tok"),
        "moe.feed_forward": ("moe_intermediate_size",),
        "moe.shared_experts": ("num_shared_expert",),
    }
    found = {field: _equal(config, *names) for field, names in keys.items()}
    return found if (found["moe.experts"] or 0) > 1 else {}


def _equal(config: Config, *keys: str) -> int | None:
    """A whole number, or the one that a list repeats."""
    flat = dict(config.values)
    for key in keys:
        value = flat.get(key)
        if isinstance(value, list) and value:
            if any(part != value[0] for part in value):
                raise InputError(f"{key}: layers that differ are not supported", config.where)
            flat[key] = value[0]
    return config._replace(values=flat).number(*keys)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _no_rule(config: Config) -> dict[str, Any]:
    return {}


OWN_RULES: Mapping[str, Callable[[Config], dict[str, Any]]] = {
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "mpt": _mpt,
    "minimax": _minimax,
    "minimax_m2": _minimax,
    "dbrx": _dbrx,
    "gpt_bigcode": _gpt_bigcode,
    "opt": _opt,
    "hunyuan_v1_moe": _hunyuan,
    "qwen3_next": _qwen3_next,
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _qwen3_next),
    "nemotron_h": _nemotron_h,
}
