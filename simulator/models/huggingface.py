"""Read a Hugging Face ``config.json``: a local file or folder; no network, no transformers.

``huggingface.yaml`` maps key names. Rules that a table cannot express (such as the key heads of Falcon and
MPT) are small functions by model_type in ``huggingface_rules.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from core.cache import read_shipped
from core.errors import InputError, UnknownNameError, shown, suggestion
from core.loading import build, exists, read_mapping
from simulator.models.checkpoints import (
    SIDECAR,
    Stored,
    blocks_of_config,
    format_of_name,
    quantization,
    stored_of,
)
from simulator.models.huggingface_families import FAMILY_RULES, unpriced
from simulator.models.huggingface_rules import OWN_RULES, Config, index_share
from simulator.models.model import Model
from simulator.models.numerics import numerics_of
from simulator.models.parts import PartFormats, Shares
from simulator.models.towers.audio import read_audio
from simulator.models.towers.families import read_tower

TEXT_PARTS = ("text_config", "llm_config", "language_config")
MOST_PERIOD = 1024
"""Maximum period of a layer pattern, layers."""
NEEDED = ("layers", "hidden", "heads", "feed_forward", "vocabulary")


def looks_like_config(data: Mapping[str, object]) -> bool:
    """Whether a parsed mapping is a Hugging Face configuration rather than a Model."""
    return any(key in data for key in ("model_type", "architectures", "hidden_size", *TEXT_PARTS))


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
    config = Config(read_mapping(path, bounded=False) if data is None else data, str(path))
    thinker = config.inner("thinker_config")  # Qwen's omni models: the part that reads and writes text
    if thinker.values:
        config = Config({**config.values, **thinker.values}, thinker.where)
    full_config = config
    for part in TEXT_PARTS:
        text = config.inner(part)
        if text.values:  # Top-level keys of a multimodal file apply to its text model too.
            config = Config({**config.values, **text.values}, text.where)
    _refuse_unsupported(config)
    config, places = _expert_layers(config)
    model_type, note = _model_type(config)
    fields = _fields(config, model_type)
    if places and "moe" in fields:
        fields["moe"]["places"] = places
    _check_complete(fields, config, model_type)
    fields |= {"name": _name(path), "family": model_type, "source": str(path)}
    fields["fp4"] = blocks_of_config(config)
    if constants := numerics_of(config):
        fields["numerics"] = constants
    fields |= _tower(full_config, fields["name"])
    notes = [words for key, words in _tables()["left_out"].items() if config.values.get(key)]
    notes += [words for words in (note, unpriced([model_type])) if words]
    return _with_formats(build(Model, fields, config.where), config, path, notes)


def _tower(config: Config, name: str) -> dict[str, Any]:
    """The towers, or the reason why one cannot be read: text questions need none."""
    try:
        towers = {"tower": read_tower(config, name), "audio": read_audio(config, name)}
    except InputError as error:
        return {"tower_problem": str(error)}
    return {key: tower.model_dump() for key, tower in towers.items() if tower is not None}


def _with_formats(model: Model, config: Config, path: Path, notes: list[str]) -> Model:
    """The model with the number formats of its checkpoint; a format that is not known is kept as words."""
    problem = ""
    try:
        stored = stored_of(quantization(config, _sidecar(path)), model)
    except InputError as error:
        stored, problem = Stored("bf16"), str(error)
    named = format_of_name(model.name)
    if named not in (None, stored.checkpoint) and not problem:
        notes.append(f"its name says {named}, its config.json {stored.checkpoint} weights, which are taken")
    parts = stored.parts
    if config.values.get("expert_dtype") == "fp4" and model.moe and not problem:
        wide: Shares = {stored.checkpoint: 1.0}
        parts = PartFormats(attention=wide, dense=wide, experts={"fp4": 1.0}, head={"bf16": 1.0})
    fields = {
        "checkpoint": stored.checkpoint,
        "parts": parts,
        "weight_only": list(stored.weight_only),
        "checkpoint_kv": stored.kv,
        "checkpoint_problem": problem,
        "left_out": "; ".join([*notes, *stored.notes]),
    }
    return model.model_copy(update=fields)


def _sidecar(path: Path) -> Config | None:
    """The file of Model Optimizer beside a ``config.json``; ``NAME_hf_quant_config.json`` beside
    ``NAME_config.json``."""
    beside = path.with_name(path.name.removesuffix("config.json") + SIDECAR)
    if not path.name.endswith("config.json") or not exists(beside):
        return None
    return Config(read_mapping(beside, bounded=False), str(beside))


def _name(path: Path) -> str:
    if path.name == "config.json":
        return path.resolve().parent.name or "model"
    return path.stem.removesuffix("_config")


@cache
def _tables() -> dict[str, Any]:
    tables = read_shipped(Path(__file__).with_suffix(".yaml"))
    types = tables["model_types"]
    return tables | {"model_types": types | {old: types[new] for old, new in tables["aliases"].items()}}


def _refuse_unsupported(config: Config) -> None:
    """Raise an error for an architecture that Model cannot describe."""
    tables, stated = _tables(), config.values.get("model_type")
    named = stated if isinstance(stated, str) else ""
    for reason, kinds in tables["refused"].items():
        if named in kinds:
            raise InputError(f"model_type {shown(named)}: {reason}", config.where)
    supported_keys = tables["hybrids"].get(named, ())
    for key, reason in tables["unsupported"].items():
        if config.values.get(key) and key not in supported_keys:
            whose = "" if named in tables["model_types"] else f"model_type {shown(stated)} is not known; "
            raise InputError(f"{whose}{key}: {reason}", config.where)


MOST_STRANGE = 6
"""Keys that an error names."""
LIKE_LLAMA_GATES = "silu", "swish", "swiglu"
LIKE_LLAMA = "llama"
"""The model_type that stands for unknown ones whose keys are all read."""


def _model_type(config: Config) -> tuple[str, str]:
    """The listed model_type, from the class of the model where the file does not name it, and a note.

    An unknown one whose keys are all read or harmless is taken for a decoder like Llama.

    Raises:
        InputError: missing, not listed, or of a kind that Model cannot describe.
    """
    tables = _tables()
    model_types, named = tables["model_types"], config.values.get("model_type")
    if named is None:
        classes = config.values.get("architectures")
        stem = str(classes[0]).partition("For")[0].lower() if isinstance(classes, list) and classes else ""
        named = next((name for name in model_types if name.replace("_", "").lower() == stem), None)
    if named is None:
        raise InputError("key 'model_type' is missing", config.where)
    if not isinstance(named, str) or not named.strip():
        raise InputError(f"model_type: a name is needed, found {shown(named)}", config.where)
    if named in model_types:
        return named, ""
    if strange := sorted(key for key, value in config.values.items() if value and not _read(key)):
        suggested = suggestion(named, model_types)
        suggested = suggested if "did you mean" in suggested else ""
        more = f" and {len(strange) - MOST_STRANGE} more" if len(strange) > MOST_STRANGE else ""
        problem = (
            f"model_type {shown(named)} is not known (of {len(model_types)} that are), and its keys "
            f"{', '.join(map(shown, strange[:MOST_STRANGE]))}{more} are not read; a model YAML can state its "
            f"shape{suggested}"
        )
        raise InputError(problem, config.where)
    if config.values.get("hidden_act") not in LIKE_LLAMA_GATES:
        gates = ", ".join(LIKE_LLAMA_GATES)
        act = shown(config.values.get("hidden_act"))
        problem = (
            f"hidden_act: model_type {shown(named)} is not known, and {act} does not tell whether its MLP "
            f"has a gate ({gates} do); a model YAML can state its shape"
        )
        raise InputError(problem, config.where)
    return LIKE_LLAMA, f"model_type {shown(named)} is not known and read as a decoder like Llama"


def _read(key: str) -> bool:
    """Whether a key of a decoder like Llama is read, or has no effect on shapes."""
    tables = _tables()
    return key in _spelled() or any(fnmatchcase(key, pattern) for pattern in tables["harmless"])


@cache
def _spelled() -> frozenset[str]:
    tables = _tables()
    fields = (*tables["numbers"].values(), *tables["flags"].values(), tables["activation_keys"])
    return frozenset(key for keys in fields for key in keys)


def _fields(config: Config, model_type: str) -> dict[str, Any]:
    """The fields of Model: from the file where stated, else defaults of its model_type."""
    tables = _tables()
    unsaid = dict(tables["model_types"][model_type])
    gated, expansion = unsaid.pop("gated", False), unsaid.pop("expansion", None)
    spellings = unsaid.pop("spellings", {})
    fields: dict[str, Any] = {"activation": "swiglu" if gated else "gelu"} | unsaid
    for read, table in ((config.number, tables["numbers"]), (config.flag, tables["flags"])):
        values = {field: read(*spellings.get(field, keys)) for field, keys in table.items()}
        fields |= {field: value for field, value in values.items() if value is not None}
    fields |= _activation(config, gated, tables)
    fields |= _attention_pattern(config, fields, tables["layer_types"])
    if own_rule := OWN_RULES.get(model_type) or FAMILY_RULES.get(model_type):
        fields |= own_rule(config)
    fields = {field: value for field, value in fields.items() if value is not None}
    if "mla.index_topk" in fields:
        fields["mla.index_share"] = index_share(config, min(fields.get("layers", 1), MOST_PERIOD))
    hidden, heads = fields.get("hidden"), fields.get("heads")
    if hidden and heads and "head_dim" not in fields and hidden % heads and "mla.kv_lora_rank" not in fields:
        fields["head_dim"] = hidden // heads
    if expansion and "hidden" in fields:
        fields.setdefault("feed_forward", expansion * fields["hidden"])
    return _nested(fields)


def _activation(config: Config, gated: bool, tables: Mapping[str, Any]) -> dict[str, Any]:
    key = next((k for k in tables["activation_keys"] if isinstance(config.values.get(k), str)), None)
    if key is None:
        return {}
    name = str(config.values[key])
    if name not in tables["activations"]:
        raise UnknownNameError("activation", name, tables["activations"], f"{config.where}: {key}")
    plain, with_gate = tables["activations"][name]
    return {"activation": with_gate if gated else plain}


def _attention_pattern(config: Config, fields: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The layers with sliding-window attention; none without a window."""
    if fields.get("sliding_window") is None or config.flag("use_sliding_window") is False:
        window: dict[str, Any] = {"sliding_window": None, "attention_pattern": None}
    else:
        window = {}
    named = config.values.get("layer_types")
    if isinstance(named, list):
        unknown = [kind for kind in named if not isinstance(kind, str) or kind not in kinds]
        if unknown:
            raise UnknownNameError(
                "kind of attention", str(unknown[0]), kinds, f"{config.where}: layer_types"
            )
        pattern = tuple(kinds[kind] for kind in named)
        return {**window, "attention_pattern": pattern} if not window or "linear" in pattern else window
    if not window and (period := _window_period(config)):
        return {"attention_pattern": period}
    full = config.number("max_window_layers")
    if not window and full and config.flag("use_sliding_window") and fields.get("layers", 0) > full:
        return {"attention_pattern": ("full",) * full + ("sliding",) * (fields["layers"] - full)}
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


def _expert_layers(config: Config) -> tuple[Config, tuple[int, ...]]:
    """Convert lists of dense and expert layers to leading dense layers, a period of expert layers, or places.

    Raises:
        InputError: a list that Model does not describe, with its key.
    """
    values = dict(config.values)
    pattern = _expert_list(config)
    if not pattern:
        return config, ()
    values.pop("moe_layer_freq", None)
    first = pattern.index(True) if True in pattern else len(pattern)
    if not any(pattern):
        for spelling in (*_tables()["numbers"]["moe.experts"], "first_k_dense_replace"):
            values.pop(spelling, None)
        return config._replace(values=values), ()
    if all(pattern[first:]):
        values["first_k_dense_replace"] = first
        return config._replace(values=values), ()
    places = tuple(layer for layer, has_experts in enumerate(pattern) if has_experts)
    every = first + 1
    if places != tuple(range(first, len(pattern), every)):
        return config, places
    return config._replace(values={**values, "first_k_dense_replace": 0, "moe_layer_freq": every}), ()


def _expert_list(config: Config) -> list[bool]:
    """Whether each layer has experts, where a list says so.

    Raises:
        InputError: a kind of layer that is neither dense nor has experts.
    """
    kinds = config.values.get("mlp_layer_types")
    if isinstance(kinds, list):
        unknown = [kind for kind in kinds if kind not in ("dense", "sparse", "moe", "hash_moe")]
        if unknown:
            raise UnknownNameError(
                "kind of MLP", str(unknown[0]), ["dense", "sparse"], f"{config.where}: mlp_layer_types"
            )
        return [kind != "dense" for kind in kinds]
    for name in ("moe_layer_freq", "is_moe_layer"):
        if isinstance(listed := config.values.get(name), list):
            return [bool(has_experts) for has_experts in listed]
    dense, layers = config.values.get("mlp_only_layers"), config.number(*_tables()["numbers"]["layers"])
    if not isinstance(dense, list) or not dense or not 0 < (layers or 0) <= MOST_PERIOD:
        return []
    every = max(config.number("decoder_sparse_step") or 1, 1)
    return [layer not in dense and (layer + 1) % every == 0 for layer in range(layers or 0)]


def _nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Collect ``moe.`` and ``mla.`` fields of models with experts or latent attention."""
    nested = {field: value for field, value in fields.items() if "." not in field}
    parts = {
        part: {f.removeprefix(part + "."): v for f, v in fields.items() if f.startswith(part + ".")}
        for part in ("moe", "mla")
    }
    if parts["moe"].get("experts"):
        parts["moe"].setdefault("feed_forward", nested.get("feed_forward"))
        # A width of shared experts without their number is that of one.
        parts["moe"].setdefault("shared_experts", int(bool(parts["moe"].get("shared_feed_forward"))))
        nested.setdefault("feed_forward", parts["moe"]["feed_forward"])
        nested["moe"] = parts["moe"]
    if "kv_lora_rank" in parts["mla"]:
        nested = {f: v for f, v in nested.items() if f not in ("kv_heads", "head_dim")}
        nested["mla"] = parts["mla"]
    return nested


def _check_complete(fields: Mapping[str, Any], config: Config, model_type: str) -> None:
    """Report missing fields by the key names of the file."""
    tables = _tables()
    listed_keys = tables["model_types"][model_type].get("spellings", {})
    spellings = tables["numbers"] | {field: keys for field, keys in listed_keys.items() if keys}
    experts = "moe" in fields and "top_k" not in fields["moe"]
    lacking = [spellings[f] for f in NEEDED if fields.get(f) is None]
    lacking += [spellings["moe.top_k"]] if experts else []
    if lacking:
        listed = ", ".join(keys[0] + (f" (or {', '.join(keys[1:])})" if keys[1:] else "") for keys in lacking)
        raise InputError(f"needed keys are missing: {listed}", config.where)
