"""Towers of InternVL (InternViT)."""

from __future__ import annotations

from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, common, side, text_hidden


def internvl(vision: Config, config: Config) -> Fields:
    """Tiles of 448 pixels, pixels shuffled to a quarter of the tokens (transformers 5.24,
    modeling_internvl.py; OpenGVLab/InternVL3-8B, modeling_internvl_chat.py)."""
    fields = common(vision)
    hidden, out, tile = fields["hidden"], text_hidden(config), side(vision, "image_size", 448)
    biased = vision.flag("qkv_bias", "attention_bias")
    wide, patches = 4 * hidden, (tile // fields["patch"]) ** 2
    scales = 2 * fields["layers"] * hidden
    most_tiles = config.number("max_dynamic_patch") or 12
    return fields | {
        "qkv_bias": bool(biased),
        "merge": 2,
        "projections": [
            {"inputs": wide, "outputs": out, "bias": True},
            {"inputs": out, "outputs": out, "bias": True},
        ],
        "vectors": (patches + 2) * hidden + scales + 2 * wide,
        "rule": {"kind": "tiles", "tile": tile, "most": most_tiles, "separators": 2},
    }
