"""Towers of Gemma 3 (SigLIP)."""

from __future__ import annotations

from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, common, side, text_hidden


def gemma3(vision: Config, config: Config) -> Fields:
    """Every image is 896 pixels wide and pooled to 256 tokens (transformers 5.24, modeling_gemma3.py)."""
    fields = common(vision)
    hidden, image = fields["hidden"], side(vision, "image_size", 896)
    tokens, rows = config.number("mm_tokens_per_image") or 256, image // fields["patch"]
    return fields | {
        "merge": max(round((rows**2 / tokens) ** 0.5), 1),
        "projections": [{"inputs": hidden, "outputs": text_hidden(config)}],
        "vectors": rows**2 * hidden + 3 * hidden,
        "rule": {"kind": "fixed", "image": image, "tokens": tokens, "separators": 2},
    }
