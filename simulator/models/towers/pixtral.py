"""Towers of Pixtral and of Mistral Small 3.1 and newer."""

from __future__ import annotations

from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, common, side, text_hidden


def pixtral(vision: Config, config: Config) -> Fields:
    """SwiGLU without biases; Mistral 3 merges patches (transformers 5.24, modeling_pixtral.py,
    modeling_mistral3.py, modeling_llava.py)."""
    fields = common(vision)
    hidden, out, merge = fields["hidden"], text_hidden(config), config.number("spatial_merge_size") or 1
    biased = bool(config.flag("multimodal_projector_bias") if merge > 1 else True)
    merging = [{"inputs": hidden * merge**2, "outputs": hidden}] if merge > 1 else []
    return fields | {
        "gated": True,
        "norm": "rmsnorm",
        "bias": False,
        "qkv_bias": False,
        "rope": True,
        "patch_bias": False,
        "merge": merge,
        "projections": [
            *merging,
            {"inputs": hidden, "outputs": out, "bias": biased},
            {"inputs": out, "outputs": out, "bias": biased},
        ],
        "vectors": hidden + (hidden if merge > 1 else 0),
        "rule": {"kind": "canvas", "longest": side(vision, "image_size", 1024)},
    }
