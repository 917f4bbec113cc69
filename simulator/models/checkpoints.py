"""Number formats of published weights: from a ``config.json``, and from the words of a name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from core.errors import InputError, UnknownNameError, shown
from simulator.models.model import Model
from simulator.models.module_formats import WIDE, ModuleFormats, ModuleList, part_formats
from simulator.models.parts import CheckpointFormat, PartFormats

if TYPE_CHECKING:
    from simulator.models.huggingface_rules import Config

KEYS = ("quantization_config", "compression_config")
SIDECAR = "hf_quant_config.json"
"""File beside ``config.json`` in which Model Optimizer states formats."""
EXCLUSIONS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "exclude")
"""Keys with modules in 16 bits: transformers, vLLM's fp8, compressed-tensors, Model Optimizer, Quark."""
SKIPPED = (*EXCLUSIONS, "llm_int8_skip_modules")
MOST_GROUPS = 64

WORDS: tuple[tuple[CheckpointFormat, tuple[str, ...]], ...] = (
    ("bf16", ("bf16", "fp16")),
    ("fp4", ("nvfp4", "mxfp4", "fp4", "w4a4")),
    ("int8", ("int8", "w8a8", "w8a16")),
    ("int4", ("int4", "awq", "gptq", "w4a16", "w4a8")),
    ("fp8", ("fp8",)),
)
"""Words of a name, the first that occurs decides: ``-FP8``, ``-NVFP4``, ``-GPTQ-Int8``."""


def format_of_name(name: str) -> CheckpointFormat | None:
    """The number format that a name's words state; None without any."""
    words = re.split("[^a-z0-9]+", name.lower())
    return next((stored for stored, names in WORDS if not set(names).isdisjoint(words)), None)


@dataclass(frozen=True)
class Stored:
    """What a checkpoint states of its number formats."""

    checkpoint: CheckpointFormat
    """Format of most weights."""
    parts: PartFormats | None = None
    weight_only: tuple[CheckpointFormat, ...] = ()
    kv: Literal["fp8", "int8", "fp4"] | None = None
    notes: tuple[str, ...] = ()


def quantization(config: Config, sidecar: Config | None = None) -> Config | None:
    """The part of a ``config.json`` that states its formats, else that of the sidecar file; None without any.

    Args:
        config: the file's text model.
        sidecar: content of ``hf_quant_config.json``.
    """
    key = next((key for key in KEYS if isinstance(config.values.get(key), Mapping)), None)
    beside = sidecar.inner("quantization") if sidecar else None
    if key is None:
        if beside is None or not beside.values:
            return None
        return beside._replace(values={"quant_method": "modelopt", **beside.values})
    part = config.inner(key)
    more = {"quant_method": "compressed-tensors"} if key == KEYS[1] else {}
    more |= dict(beside.values) if beside else {}
    if "quant_algo" in {**more, **part.values}:
        more = {"quant_method": "modelopt", **more}  # the key that Model Optimizer alone has
    return part._replace(values={**more, **part.values})


def stored_of(part: Config | None, model: Model) -> Stored:
    """Formats of a checkpoint's weights by part, and of its KV cache.

    Args:
        part: what `quantization` returns.
        model: its layers and widths.

    Raises:
        InputError: an unknown method or width; with file and key.
    """
    if part is None:
        return Stored(WIDE)
    method = part.values.get("quant_method")
    if not isinstance(method, str) or method.lower() not in METHODS:
        raise UnknownNameError("quant_method", str(method), sorted(METHODS), part.where)
    listed, weight_only = METHODS[method.lower()](part)
    unlisted = (
        method.lower().startswith("modelopt") and isinstance(listed, str) and not _states_exclusions(part)
    )
    published = PUBLISHED.get((model.family, listed)) if unlisted else None
    listed = published or listed
    default = listed if isinstance(listed, str) else listed[0]
    named = () if isinstance(listed, str) else listed[1]
    formats = ModuleFormats(default, ModuleList(_excluded(part)), named)
    parts, note = part_formats(model, formats)
    by_part = {
        name: getattr(parts, name) for name in ("attention", "dense", "experts") if getattr(parts, name)
    }
    main = _most(model, parts) if by_part else default
    plain = all(shares == {default: 1.0} for shares in by_part.values()) and parts.head == {WIDE: 1.0}
    by_rule = default == "fp4" and model.moe is not None
    if not by_part or (plain and not by_rule) or (method.lower() == "mxfp4" and not _excluded(part)):
        parts = None
    notes = [note] if note else []
    if published:
        notes.append("it lists no modules, so that the formats that NVIDIA publishes for its kind are taken")
    elif unlisted:
        notes.append(f"it lists no modules in 16 bits, so that all linear layers are taken as {default}")
    if formats.unread:
        notes.append(f"modules named by {formats.unread[0]!r} are not evaluated")
    return Stored(main, parts, weight_only, _kv(part), tuple(notes))


def _most(model: Model, parts: PartFormats) -> CheckpointFormat:
    """The format of most weights of the linear layers; of most quantised ones where any are."""
    from simulator.models.module_formats import linears

    counts: Counter[CheckpointFormat] = Counter()
    for members in linears(model).values():
        for linear in members:
            for weight_format, share in getattr(parts, linear.part).items():
                counts[weight_format] += round(share * linear.weights)
    narrow: Counter[CheckpointFormat] = Counter()
    for weight_format, count in counts.items():
        if weight_format != WIDE and count:
            narrow[weight_format] = count
    return (narrow or counts).most_common(1)[0][0]


def _words(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _states_exclusions(part: Config) -> bool:
    """Whether a list of modules in 16 bits is there, be it empty; Model Optimizer writes one always."""
    return any(
        key in values for key in EXCLUSIONS for values in (part.values, part.inner("quantization").values)
    )


def _excluded(part: Config) -> list[str]:
    """Modules that stay in 16 bits, under any of the keys for them."""
    names = [word for key in SKIPPED for word in _words(part.values.get(key))]
    dynamic = part.inner("dynamic").values  # GPTQModel: `-:` before the expression of modules left out
    names += [f"re:{key[2:]}" for key in dynamic if isinstance(key, str) and key.startswith("-:")]
    extra = part.inner("extra_config")  # AutoRound: bits of single modules
    names += [key for key in extra.values if extra.inner(key).values.get("bits") == 16]
    return names


def _kv(part: Config) -> Literal["fp8", "int8", "fp4"] | None:
    """Format of the KV cache: ``kv_cache_quant_algo``, or a scheme of bits and type.

    Raises:
        InputError: an unknown algorithm or width.
    """
    inner = part.inner("quantization")
    scheme = part.inner("kv_cache_scheme")
    named = part.values.get("kv_cache_scheme")
    algorithm = part.values.get("kv_cache_quant_algo", inner.values.get("kv_cache_quant_algo", named))
    if isinstance(algorithm, str) and algorithm.lower() not in ("none", "auto"):
        if algorithm.upper() not in KV_ALGORITHMS:
            raise UnknownNameError("kv_cache_quant_algo", algorithm, sorted(KV_ALGORITHMS), part.where)
        return KV_ALGORITHMS[algorithm.upper()]
    if not scheme.values:
        return None
    kind = str(scheme.values.get("type", "float"))
    kv_format = _of_bits(scheme.values.get("num_bits"), kind, f"{scheme.where}.num_bits")
    cache_formats: dict[str, Literal["fp8", "int8", "fp4"]] = {"fp8": "fp8", "int8": "int8", "fp4": "fp4"}
    return cache_formats.get(kv_format)


KV_ALGORITHMS: dict[str, Literal["fp8", "int8", "fp4"]] = {
    "FP8": "fp8",
    "INT8": "int8",
    "NVFP4": "fp4",
    "NVFP4_AFFINE": "fp4",
}
"""``kv_cache_quant_algo`` of Model Optimizer (TensorRT-LLM, tensorrt_llm/quantization/mode.py)."""


def blocks_of_config(config: Config) -> Literal["nvfp4", "mxfp4"]:
    """Blocks of the 4-bit floating-point weights of a ``config.json``: ``mxfp4`` where its method says so."""
    parts = [part for key in KEYS if isinstance(part := config.values.get(key), Mapping)]
    return "mxfp4" if any("mxfp4" in str(_stated_kind(part)).lower() for part in parts) else "nvfp4"


def _stated_kind(part: Mapping[str, Any]) -> tuple[object, ...]:
    return part.get("quant_method"), part.get("quant_algo"), part.get("format")


def _always(stored: CheckpointFormat) -> Reader:
    return lambda part: (stored, ())


def _of_bits(bits: object, kind: str, where: str) -> CheckpointFormat:
    """Format of weights by their width and kind (int, float).

    Raises:
        InputError: another width.
    """
    floats: dict[object, CheckpointFormat] = {4: "fp4", 8: "fp8", 16: "bf16"}
    integers: dict[object, CheckpointFormat] = {4: "int4", 8: "int8", 16: "bf16"}
    by_width = floats if kind.startswith("float") else integers
    if bits not in by_width:
        listed = ", ".join(map(str, by_width))
        raise InputError(f"weights of {shown(bits)} bits are not described; known: {listed}", where)
    return by_width[bits]


Listed = tuple[CheckpointFormat, tuple[tuple[ModuleList, CheckpointFormat], ...]]
Read = tuple[CheckpointFormat | Listed, tuple[CheckpointFormat, ...]]
"""The format of all modules, or that of unnamed ones and lists of others; formats with 16-bit inputs."""
Reader = Callable[["Config"], Read]
PUBLISHED: Mapping[tuple[str, object], Listed] = {
    ("nemotron_h", "fp4"): (
        WIDE,
        (
            (ModuleList(("*.mixer.experts*",)), "fp4"),
            (ModuleList(("*.mixer.shared_experts*", "*.mixer.in_proj", "*.mixer.out_proj")), "fp8"),
        ),
    )
}
"""Formats by model_type and algorithm where a file of Model Optimizer lists no modules, as copies without its
lists do: docs.nvidia.com/nemotron, ultra3/quantization, read 2026-11-30 (routed experts NVFP4, shared experts
and linear layers of Mamba FP8, the rest 16 bits; Super's published size is that of the same)."""


def _integers(part: Config) -> Read:
    """AWQ and GPTQ: ``bits``; those of AutoRound's single modules."""
    bits = part.values.get("bits", part.values.get("w_bit", 4))
    default = _of_bits(bits, "int", f"{part.where}.bits")
    extra = part.inner("extra_config")
    others: dict[CheckpointFormat, list[str]] = {}
    for name in extra.values:
        module_bits = extra.inner(name).values.get("bits", bits)
        if module_bits not in (bits, 16):
            others.setdefault(_of_bits(module_bits, "int", f"{extra.where}.{name}.bits"), []).append(name)
    return (default, tuple((ModuleList(names), stored) for stored, names in others.items())), ()


def _bitsandbytes(part: Config) -> Read:
    return "int8" if part.flag("load_in_8bit", "_load_in_8bit") else "int4", ()


def _groups(part: Config) -> Read:
    """compressed-tensors: ``config_groups``, each with targets and the format of their weights.

    Raises:
        InputError: no group, or weights of an unknown width.
    """
    groups = part.inner("config_groups")
    default: CheckpointFormat | None = None
    unnamed: dict[str, CheckpointFormat] = {}
    lists: list[tuple[ModuleList, CheckpointFormat]] = []
    wide_inputs: list[CheckpointFormat] = []
    for name in list(groups.values)[:MOST_GROUPS]:
        group = groups.inner(name)
        weights = group.inner("weights")
        if not weights.values:
            continue
        kind = str(weights.values.get("type", "int"))
        group_format = _of_bits(weights.values.get("num_bits"), kind, f"{weights.where}.num_bits")
        if kind.startswith("float") and not group.inner("input_activations").values:
            wide_inputs.append(group_format)
        targets = _words(group.values.get("targets"))
        if "Linear" in targets or not targets or (default is None and _all_linears(targets)):
            default = default or group_format
            unnamed[name] = group_format
        if others := [word for word in targets if word != "Linear"]:
            lists.append((ModuleList(others), group_format))
    if default is None and not lists:
        raise InputError("states no format of the weights", groups.where)
    if len(set(unnamed.values())) > 1:
        formats = ", ".join(f"{name} {group_format}" for name, group_format in list(unnamed.items())[:3])
        raise InputError(f"groups of mixed formats ({formats}) have the same or no targets", groups.where)
    return (default or WIDE, tuple(lists)), tuple(dict.fromkeys(wide_inputs))


def _all_linears(targets: list[str]) -> bool:
    """Whether targets are classes of modules rather than names."""
    return all(re.fullmatch(r"[A-Z]\w*", word) for word in targets)


def _modelopt(part: Config) -> Read:
    """NVIDIA's Model Optimizer: ``quant_algo``, else groups as compressed-tensors has them.

    Raises:
        InputError: an unknown algorithm.
    """
    inner = part.inner("quantization")
    algorithm = part.values.get("quant_algo", inner.values.get("quant_algo"))
    if algorithm is None:
        return _groups(part)
    name = str(algorithm).upper()
    if name != "MIXED_PRECISION":
        return _algorithm(name, part.where), (_algorithm(name, part.where),) if _wide_inputs(name) else ()
    layers = part.inner("quantized_layers")
    if not layers.values:
        layers = inner.inner("quantized_layers")
    if not layers.values:
        if part.inner("config_groups").values:
            return _groups(part)
        raise InputError("states no format of the weights: quantized_layers is missing", part.where)
    named: dict[CheckpointFormat, list[str]] = {}
    wide_inputs: list[CheckpointFormat] = []
    for layer, algorithm in _layer_algorithms(layers):
        stored = _algorithm(algorithm, f"{layers.where}.{layer}")
        named.setdefault(stored, []).append(layer)
        if _wide_inputs(algorithm):
            wide_inputs.append(stored)
    return (WIDE, tuple((ModuleList(names), stored) for stored, names in named.items())), tuple(
        dict.fromkeys(wide_inputs)
    )


def _layer_algorithms(layers: Config) -> Iterator[tuple[str, str]]:
    for layer in layers.values:
        algorithm = layers.inner(layer).values.get("quant_algo")
        if algorithm is not None:
            yield layer, str(algorithm).upper()


def _algorithm(name: str, where: str) -> CheckpointFormat:
    if name not in ALGORITHMS:
        raise UnknownNameError("quant_algo", name, sorted(ALGORITHMS), where)
    return ALGORITHMS[name]


def _wide_inputs(algorithm: str) -> bool:
    """Whether an algorithm's products have 16-bit inputs, in a format that has narrow ones too."""
    return algorithm.startswith("W4A16_") and "FP4" in algorithm


ALGORITHMS: dict[str, CheckpointFormat] = {
    "NONE": "bf16",
    "FP8": "fp8",
    "FP8_PB_WO": "fp8",
    "FP8_PB_REAL": "fp8",
    "FP8_BLOCK_SCALES": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "MXFP8": "fp8",
    "NVFP4": "fp4",
    "NVFP4_AWQ": "fp4",
    "NVFP4_ARC": "fp4",
    "NVFP4_SVDQUANT": "fp4",
    "MXFP4": "fp4",
    "W4A16_NVFP4": "fp4",
    "W4A16_MXFP4": "fp4",
    "W4A8_NVFP4_FP8": "fp4",
    "W4A8_MXFP4_FP8": "fp4",
    "W4A8_MXFP4_MXFP8": "fp4",
    "W4A16": "int4",
    "W4A16_AWQ": "int4",
    "W4A16_GPTQ": "int4",
    "W4A8_AWQ": "int4",
    "W4A8_QSERVE_PER_GROUP": "int4",
    "W4A8_QSERVE_PER_CHANNEL": "int4",
    "INT4_AWQ": "int4",
    "W8A16": "int8",
    "W8A16_GPTQ": "int8",
    "INT8_SQ": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "W8A8_SQ_PER_TENSOR_PLUGIN": "int8",
}
"""``quant_algo`` of Model Optimizer (TensorRT-LLM, tensorrt_llm/quantization/mode.py, QuantAlgo)."""

QUARK: dict[str, CheckpointFormat] = {
    "fp4": "fp4",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "int4": "int4",
    "uint4": "int4",
    "int8": "int8",
}


def _quark(part: Config) -> Read:
    """AMD's Quark: the global dtype of weights, and those of single layers.

    Raises:
        InputError: another dtype.
    """
    default = _quark_weight(part.inner("global_quant_config"))
    layers = part.inner("layer_quant_config")
    lists: tuple[tuple[ModuleList, CheckpointFormat], ...] = tuple(
        (ModuleList([name]), _quark_weight(layers.inner(name))) for name in list(layers.values)[:MOST_GROUPS]
    )
    return (default, lists), ()


def _quark_weight(part: Config) -> CheckpointFormat:
    weight = part.inner("weight")
    dtype = str(weight.values.get("dtype", ""))
    if dtype not in QUARK:
        raise UnknownNameError("dtype", dtype, sorted(QUARK), weight.where)
    return QUARK[dtype]


METHODS: Mapping[str, Reader] = {
    "fp8": _always("fp8"),
    "fbgemm_fp8": _always("fp8"),
    "mxfp4": _always("fp4"),
    "modelopt": _modelopt,
    "modelopt_fp4": _always("fp4"),
    "modelopt_mixed": _modelopt,
    "awq": _integers,
    "gptq": _integers,
    "auto-round": _integers,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _groups,
    "quark": _quark,
}
"""Readers by ``quant_method``."""
