"""Spellings of ``config.json`` files of 2026."""

import json

import pytest

from core.errors import InputError
from simulator.models import models
from simulator.ops.counts import model_parameters

LAYERS = 48
K_EXAONE = {
    "model_type": "exaone_moe",
    "hidden_act": "silu",
    "hidden_size": 6144,
    "intermediate_size": 18432,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "vocab_size": 153600,
    "tie_word_embeddings": False,
    "max_position_embeddings": 262144,
    "sliding_window": 128,
    "first_last_k_dense_replace": 1,
    "is_moe_layer": [False] + [True] * (LAYERS - 1),
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * (LAYERS // 4),
}
TEXT = {
    "model_type": "exaone4_vl_text",
    "hidden_act": "silu",
    "hidden_size": 5120,
    "intermediate_size": 27392,
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "vocab_size": 153600,
    "sliding_window": 4096,
    "sliding_window_pattern": "LLLG",
    "reorder_qk_norm": True,
    "max_position_embeddings": 131072,
}


def read(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return models.get(path)


def test_k_exaone_has_one_dense_layer(tmp_path):
    """236B in its report; with experts in all layers 241B."""
    model = read(tmp_path, K_EXAONE)
    assert model_parameters(model) == pytest.approx(236.6e9, rel=1e-3)
    assert [model.is_moe_layer(layer) for layer in (0, 1, LAYERS - 1)] == [False, True, True]


def test_exaone_4_5_is_exaone_4_with_a_tower_left_out(tmp_path):
    model = read(tmp_path, {"model_type": "exaone4_5", "text_config": TEXT, "vision_config": {"depth": 28}})
    assert model_parameters(model) == pytest.approx(32.5e9, rel=5e-3)
    assert "vision encoder" in model.left_out


LLAMA_VISION = {
    "model_type": "mllama_text_model",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
}


def test_layers_that_attend_to_a_picture_take_memory_alone(tmp_path):
    """Llama 3.2 11B Vision: 9.775B without its tower, as transformers builds it; text passes 32 layers."""
    model = read(tmp_path, {"model_type": "mllama", "text_config": LLAMA_VISION, "vision_config": {"a": 1}})
    assert model_parameters(model) == pytest.approx(9_775_192_080, rel=1e-5)
    assert model.layers == 32
    assert "layers that attend to a picture take memory, not time" in model.left_out


@pytest.mark.parametrize("layers", [3, ["a"], [40], [-1]])
def test_layers_that_are_none_are_refused(tmp_path, layers):
    with pytest.raises(InputError, match="cross_attention_layers"):
        read(tmp_path, LLAMA_VISION | {"cross_attention_layers": layers})


def test_an_expert_that_all_tokens_visit_is_there_unless_the_file_says_how_many(tmp_path):
    base = {"hidden_act": "silu", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2}
    base |= {"model_type": "hunyuan_v1_moe", "num_attention_heads": 8, "vocab_size": 1000, "head_dim": 64}
    base |= {"num_experts": 4, "moe_topk": 2}
    model, other = read(tmp_path, base), read(tmp_path, base | {"num_shared_expert": 1})
    assert model_parameters(model) == model_parameters(other)


def test_a_codec_of_pictures_is_named_as_left_out(tmp_path):
    text = {key: value for key, value in LLAMA_VISION.items() if key != "cross_attention_layers"}
    model = read(
        tmp_path,
        {
            "model_type": "emu3",
            "text_config": text | {"model_type": "emu3_text_model"},
            "vq_config": {"a": 1},
        },
    )
    assert "the codec of pictures" in model.left_out
