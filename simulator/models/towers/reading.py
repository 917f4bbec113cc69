"""Keys of vision configurations that families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core.errors import InputError, shown
from core.loading import exists, read_mapping
from simulator.models.huggingface_rules import Config

Fields = dict[str, Any]
Reader = Callable[[Config, Config], Fields]
"""Fields of a tower, from its part of a file and from the file's top level."""

SPELLINGS = {
    "layers": ("depth", "num_hidden_layers", "vt_num_hidden_layers"),
    "hidden": ("hidden_size", "vt_hidden_size"),
    "heads": ("num_heads", "num_attention_heads", "vt_num_attention_heads"),
    "feed_forward": ("intermediate_size", "vt_intermediate_size"),
}
PREPROCESSOR = "preprocessor_config.json"


def reader_of(config: Config, key: str, readers: Mapping[str, Reader]) -> tuple[Config, Reader] | None:
    """The part of a file that describes a tower, and its reader; None without it, or of no family known.

    Args:
        config: the top level of the file.
        key: of the part.
        readers: by ``model_type``.
    """
    part, reader = config.inner(key), readers.get(str(config.values.get("model_type")))
    return None if reader is None or not part.values else (part, reader)


def needed(config: Config, *keys: str) -> int:
    """A number that the file must state.

    Raises:
        InputError: it is missing, or no whole number.
    """
    value = config.number(*keys)
    if value is None:
        raise InputError(f"key {keys[0]!r} is missing", config.where)
    return value


def side(config: Config, key: str, default: int) -> int:
    """A size of a square, stated as a number or as a list of two.

    Raises:
        InputError: the square has two different sides.
    """
    value = config.values.get(key)
    if not isinstance(value, list):
        return config.number(key) or default
    if not value or any(size != value[0] for size in value) or type(value[0]) is not int:
        raise InputError(f"{key}: a square is needed, found {shown(value)}", config.where)
    return value[0]


def common(vision: Config) -> Fields:
    """Sizes of layers and patches."""
    fields: Fields = {name: needed(vision, *keys) for name, keys in SPELLINGS.items()}
    return fields | {
        "patch": side(vision, "patch_size", 14),
        "temporal": vision.number("temporal_patch_size") or 1,
        "merge": vision.number("spatial_merge_size") or 1,
    }


def text_hidden(config: Config) -> int:
    """Width of the language model.

    Raises:
        InputError: the file does not state it.
    """
    for part in ("text_config", "llm_config", "language_config"):
        inner = config.inner(part)
        if (width := inner.number("hidden_size")) is not None:
            return width
    return needed(config, "hidden_size")


def limits(config: Config, least: int, most_pixels: int) -> tuple[int, int]:
    """Pixels of the smallest and the largest image: of the file beside ``config.json``, or the family's own.

    Args:
        config: the top level of the file.
        least, most: limits of the family's released preprocessor_config.json.

    Raises:
        InputError: the file beside it cannot be read.
    """
    path = Path(config.where).parent / PREPROCESSOR
    if Path(config.where).name != "config.json" or not exists(path):
        return least, most_pixels
    beside = Config(read_mapping(path, bounded=False), str(path))
    size = beside.inner("size")
    return (
        beside.number("min_pixels") or size.number("shortest_edge") or least,
        beside.number("max_pixels") or size.number("longest_edge") or most_pixels,
    )
