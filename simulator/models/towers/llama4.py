"""Towers of Llama 4."""

from __future__ import annotations

from simulator.models.huggingface_rules import Config
from simulator.models.towers.reading import Fields, common, side, text_hidden


def llama4(vision: Config, config: Config) -> Fields:
    """Tiles with a global one; pixels are shuffled (transformers 5.24, modeling_llama4.py)."""
    fields = common(vision)
    hidden, tile = fields["hidden"], side(vision, "image_size", 448)
    inner = vision.number("projector_input_dim") or 4096
    outer = vision.number("projector_output_dim") or 4096
    vision_out = vision.number("vision_output_dim") or outer
    patches = (tile // fields["patch"]) ** 2
    return fields | {
        "rope": True,
        "patch_bias": False,
        "merge": 2,
        "projections": [
            {"inputs": vision.number("intermediate_size") or 4 * hidden, "outputs": inner},
            {"inputs": inner, "outputs": outer},
            {"inputs": vision_out, "outputs": text_hidden(config)},
        ],
        "vectors": (patches + 2) * hidden + 4 * hidden,
        # processing_llama4.py, _prompt_split_image: image_start, image, image_end, and one tile_x or tile_y
        # separator behind each tile. 16 tiles: max_patches of the released preprocessor_config.json.
        "rule": {
            "kind": "tiles",
            "tile": tile,
            "most": 16,
            "fits": "scale",
            "separators": 3,
            "tile_separators": 1,
        },
    }
