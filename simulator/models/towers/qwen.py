"""Towers of Qwen2.5-VL, Qwen3-VL and Qwen3.5."""

from __future__ import annotations

from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, common, limits, needed


def qwen2_5(vision: Config, config: Config) -> Fields:
    """Windows of 112 pixels, SwiGLU, one merger (transformers 5.24, modeling_qwen2_5_vl.py)."""
    fields = common(vision) | {"gated": True, "norm": "rmsnorm", "patch_bias": False, "rope": True}
    hidden, merge = fields["hidden"], fields["merge"]
    full = vision.values.get("fullatt_block_indexes")
    wide = hidden * merge**2
    out = needed(vision, "out_hidden_size")
    least, most_pixels = limits(config, 3136, 12_845_056)
    return fields | {
        "window": (vision.number("window_size") or 112) // fields["patch"],
        "full_layers": len(full) if isinstance(full, list) else 4,
        "projections": [
            {"inputs": wide, "outputs": wide, "bias": True},
            {"inputs": wide, "outputs": out, "bias": True},
        ],
        "vectors": hidden,
        # qwen-vl-utils 0.0.14, vision_process.py: VIDEO_MAX_PIXELS = 768 x 28 x 28.
        "rule": {"least": least, "most": most_pixels, "most_of_frame": 602_112},
    }


def qwen3(vision: Config, config: Config) -> Fields:
    """Learned positions, and mergers of inner layers (transformers 5.24, modeling_qwen3_vl.py)."""
    fields = common(vision) | {"rope": True}
    hidden, merge = fields["hidden"], fields["merge"]
    taps = vision.values.get("deepstack_visual_indexes")
    count = len(taps) if isinstance(taps, list) else 0
    wide = hidden * merge**2
    both = [
        {"inputs": wide, "outputs": wide, "bias": True},
        {"inputs": wide, "outputs": needed(vision, "out_hidden_size"), "bias": True},
    ]
    positions = vision.number("num_position_embeddings") or 2304
    least, most_pixels = limits(config, 65_536, 16_777_216)
    return fields | {
        "projections": both,
        "stacked": both if count else [],
        "taps": count,
        "vectors": positions * hidden + 2 * hidden + count * 2 * wide,
        "rule": {"least": least, "most": most_pixels},
    }
