"""Spellings of ``config.json`` files of 2026."""

import json

import pytest

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
