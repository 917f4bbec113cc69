"""Number formats of published weights: from a ``config.json``, and from the words of a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from core.errors import InputError, UnknownNameError, shown
from simulator.models.huggingface_rules import Config
from simulator.models.model import CheckpointFormat

WIDE: CheckpointFormat = "bf16"
KEYS = ("quantization_config", "compression_config")

WORDS: tuple[tuple[str, CheckpointFormat], ...] = (
    (r"bf16|fp16", "bf16"),
    (r"nvfp4|mxfp4|fp4|w4a4", "fp4"),
    (r"int8|w8a8|w8a16", "int8"),
    (r"int4|awq|gptq|w4a16|w4a8", "int4"),
    (r"fp8", "fp8"),
)
"""Words of a name, the first that occurs decides: ``-FP8``, ``-NVFP4``, ``-GPTQ-Int8``."""


def format_of_name(name: str) -> CheckpointFormat | None:
    """The number format that a name's words state; None without any."""
    words = name.lower()
    for pattern, stored in WORDS:
        if re.search(rf"(?<![a-z0-9])({pattern})(?![a-z0-9])", words):
            return stored
    return None


def format_of_config(config: Config) -> CheckpointFormat:
    """The number format of a ``config.json``'s weights; 16 bits where it states no quantisation.

    Raises:
        InputError: an unknown method, or layers of several formats; with file and key.
    """
    key = next((key for key in KEYS if isinstance(config.values.get(key), Mapping)), None)
    if key is None:
        return WIDE
    part = config.inner(key)
    method = part.values.get("quant_method", "compressed-tensors" if key == KEYS[1] else None)
    if not isinstance(method, str) or method.lower() not in METHODS:
        raise UnknownNameError("quant_method", str(method), sorted(METHODS), part.where)
    return METHODS[method.lower()](part)


def blocks_of_config(config: Config) -> str:
    """Blocks of the 4-bit floating-point weights of a ``config.json``: ``mxfp4`` where its method says so."""
    parts = (config.values.get(key) for key in KEYS)
    methods = (part.get("quant_method") for part in parts if isinstance(part, Mapping))
    return "mxfp4" if any(str(method).lower() == "mxfp4" for method in methods) else "nvfp4"


def _always(stored: CheckpointFormat) -> Callable[[Config], CheckpointFormat]:
    return lambda part: stored


def _of_bits(bits: object, kind: str, where: str) -> CheckpointFormat:
    """Format of weights by their width and kind (int, float).

    Raises:
        InputError: another width.
    """
    floats: dict[object, CheckpointFormat] = {4: "fp4", 8: "fp8", 16: "bf16"}
    integers: dict[object, CheckpointFormat] = {4: "int4", 8: "int8", 16: "bf16"}
    known = floats if kind.startswith("float") else integers
    if bits not in known:
        listed = ", ".join(map(str, known))
        raise InputError(f"weights of {shown(bits)} bits are not described; known: {listed}", where)
    return known[bits]


def _integers(part: Config) -> CheckpointFormat:
    """AWQ and GPTQ: ``bits``."""
    return _of_bits(part.values.get("bits", part.values.get("w_bit", 4)), "int", f"{part.where}.bits")


def _bitsandbytes(part: Config) -> CheckpointFormat:
    return "int8" if part.flag("load_in_8bit", "_load_in_8bit") else "int4"


def _groups(part: Config) -> CheckpointFormat:
    """compressed-tensors: weights of ``config_groups``.

    Raises:
        InputError: groups of several formats, or none.
    """
    groups = part.inner("config_groups")
    formats: dict[str, CheckpointFormat] = {}
    for name in groups.values:
        weights = groups.inner(name).inner("weights")
        if weights.values:
            kind = str(weights.values.get("type", "int"))
            formats[name] = _of_bits(weights.values.get("num_bits"), kind, f"{weights.where}.num_bits")
    return _single(formats, groups.where)


def _modelopt(part: Config) -> CheckpointFormat:
    """NVIDIA's Model Optimizer: ``quant_algo``, else groups as compressed-tensors has them.

    Raises:
        InputError: layers of several formats, or an unknown algorithm.
    """
    inner = part.inner("quantization")
    algorithm = part.values.get("quant_algo", inner.values.get("quant_algo"))
    if algorithm is None:
        return _groups(part)
    name = str(algorithm).upper()
    if name == "MIXED_PRECISION":
        layers = part.inner("quantized_layers")
        formats: dict[str, CheckpointFormat] = {
            layer: ALGORITHMS.get(str(layers.inner(layer).values.get("quant_algo")).upper(), WIDE)
            for layer in layers.values
        }
        return _single(formats, f"{part.where}.quantized_layers")
    if name not in ALGORITHMS:
        raise UnknownNameError("quant_algo", str(algorithm), sorted(ALGORITHMS), part.where)
    return ALGORITHMS[name]


ALGORITHMS: dict[str, CheckpointFormat] = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8",
    "FP8_PB_REAL": "fp8",
    "NVFP4": "fp4",
    "NVFP4_AWQ": "fp4",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "W4A8_NVFP4_FP8": "fp4",
    "W4A8_MXFP4_FP8": "fp4",
    "INT4_AWQ": "int4",
    "INT8_SQ": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
}
"""``quant_algo`` of Model Optimizer (TensorRT-LLM, tensorrt_llm/quantization/mode.py, QuantAlgo)."""


def _quark(part: Config) -> CheckpointFormat:
    """AMD's Quark: the global dtype of weights.

    Raises:
        InputError: another dtype.
    """
    weight = part.inner("global_quant_config").inner("weight")
    dtype = str(weight.values.get("dtype", ""))
    known: dict[str, CheckpointFormat] = {
        "fp4": "fp4",
        "fp8_e4m3": "fp8",
        "fp8_e5m2": "fp8",
        "int4": "int4",
        "uint4": "int4",
        "int8": "int8",
    }
    if dtype not in known:
        raise UnknownNameError("dtype", dtype, sorted(known), weight.where)
    return known[dtype]


def _single(formats: Mapping[str, CheckpointFormat], where: str) -> CheckpointFormat:
    """The format that all parts share.

    Raises:
        InputError: several formats, or no part.
    """
    distinct = sorted(set(formats.values()))
    if not distinct:
        raise InputError("states no format of the weights", where)
    if len(distinct) > 1:
        some = ", ".join(f"{name} {value}" for name, value in list(formats.items())[:3])
        raise InputError(
            f"a checkpoint of mixed formats ({', '.join(distinct)}: {some}) is not described; remove this "
            "key and state one with `weights` of the deployment or --fix weights=",
            where,
        )
    return distinct[0]


METHODS: Mapping[str, Callable[[Config], Any]] = {
    "fp8": _always("fp8"),
    "fbgemm_fp8": _always("fp8"),
    "mxfp4": _always("fp4"),
    "modelopt": _modelopt,
    "modelopt_fp4": _always("fp4"),
    "awq": _integers,
    "gptq": _integers,
    "auto-round": _integers,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _groups,
    "quark": _quark,
}
"""Readers by ``quant_method``."""
