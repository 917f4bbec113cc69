"""Towers of Kimi-VL and Kimi-K2.5 (MoonViT)."""

from __future__ import annotations

from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, common, text_hidden

PATCHES = {"kimi_vl": 4096, "kimi_k25": 16_384}
"""Most patches of an image (moonshotai/Kimi-VL-A3B-Instruct, moonshotai/Kimi-K2.5, preprocessor_config.json:
in_token_limit, in_patch_limit)."""


def kimi(vision: Config, config: Config) -> Fields:
    """SigLIP's layers with rotary positions (transformers 5.24, modeling_kimi_k25.py)."""
    fields = common(vision) | {"rope": True, "merge": 2}
    hidden, wide, out = fields["hidden"], fields["hidden"] * 4, text_hidden(config)
    rows = vision.number("pos_emb_height", "init_pos_emb_height") or 64
    columns = vision.number("pos_emb_width", "init_pos_emb_width") or 64
    patches = PATCHES.get(str(config.values.get("model_type")), 16_384)
    return fields | {
        "projections": [
            {"inputs": wide, "outputs": wide, "bias": True},
            {"inputs": wide, "outputs": out, "bias": True},
        ],
        "vectors": rows * columns * hidden + 4 * hidden,
        "rule": {"padded": True, "most": patches * fields["patch"] ** 2},
    }
