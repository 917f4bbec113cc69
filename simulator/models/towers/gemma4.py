"""Towers of Gemma 4."""

from __future__ import annotations

from pathlib import Path

from core.loading import exists, read_mapping
from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, common, text_hidden

PROCESSOR = "processor_config.json"


def gemma4(vision: Config, config: Config) -> Fields:
    """GeGLU with four norms, 2D positions, patches pooled behind the layers (transformers 5.24,
    modeling_gemma4.py).

    Raises:
        InputError: a key of the tower is missing or wrong.
    """
    fields = common(vision)
    hidden = fields["hidden"]
    standardized = 2 * hidden if vision.flag("standardize") else 0
    tokens = _image_tokens(config) or vision.number("default_output_length") or 280
    return fields | {
        "gated": True,
        "norm": "rmsnorm",
        "norms": 4,
        "qk_norm": True,
        "bias": False,
        "qkv_bias": False,
        "rope": True,
        "patch_bias": False,
        "merge": vision.number("pooling_kernel_size") or 3,
        "projections": [{"inputs": hidden, "outputs": text_hidden(config)}],
        "vectors": 2 * (vision.number("position_embedding_size") or 10_240) * hidden + standardized,
        "rule": {"kind": "budget", "tokens": tokens, "separators": 2},
    }


def _image_tokens(config: Config) -> int | None:
    """Most tokens of an image in the file beside ``config.json``; None: not stated."""
    path = Path(config.where).parent / PROCESSOR
    if Path(config.where).name != "config.json" or not exists(path):
        return config.number("vision_soft_tokens_per_image")
    beside = Config(read_mapping(path, bounded=False), str(path))
    return beside.inner("image_processor").number("max_soft_tokens")
