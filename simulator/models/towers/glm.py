"""Towers of GLM-4.1V, GLM-4.5V and GLM-4.6V."""

from __future__ import annotations

from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, common, limits, needed


def glm(vision: Config, config: Config) -> Fields:
    """A strided convolution merges patches, a gated MLP follows (transformers 5.24, modeling_glm4v.py)."""
    fields = common(vision) | {
        "gated": True,
        "norm": "rmsnorm",
        "bias": False,
        "qkv_bias": False,
        "rope": True,
    }
    hidden, merge = fields["hidden"], fields["merge"]
    out, wide = needed(vision, "out_hidden_size"), fields["feed_forward"]
    positions = ((vision.number("image_size") or 336) // fields["patch"]) ** 2
    least, most_pixels = limits(config, 12_544, 9_633_792)
    return fields | {
        "feed_forward": out,  # `intermediate_size` is the merger's.
        "projections": [
            {"inputs": hidden * merge**2, "outputs": out, "bias": True},
            {"inputs": out, "outputs": out},
            {"inputs": out, "outputs": 2 * wide},
            {"inputs": wide, "outputs": out},
        ],
        "vectors": positions * hidden + 2 * hidden + 2 * out,
        # Its limits count both frames that a patch spans.
        "rule": {"least": least // fields["temporal"], "most": most_pixels // fields["temporal"]},
    }
