"""Sizes of checkpoints: the parts that are weighed are the model's."""

import pytest

from evidence.accuracy.config_files import checkpoint_parts, published_error, weight_gigabytes
from evidence.accuracy.kv_by_hand import kv_bytes
from simulator.models import models
from simulator.ops.counts import model_parameters


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "qwen3-next-80b-a3b", "gpt-oss-120b"])
def test_parts_of_a_checkpoint_are_its_parameters(name):
    model = models.get(name)
    total = sum(part.weights for part in checkpoint_parts(model))
    assert total == pytest.approx(model_parameters(model), rel=1e-4)


def test_a_checkpoint_in_16_bits_weighs_two_bytes_a_parameter():
    model = models.get("llama-3.1-8b")
    assert weight_gigabytes(model) == pytest.approx(2e-9 * model_parameters(model), rel=1e-4)


def test_published_sizes_are_compared_in_their_own_unit():
    model = models.get("llama-3.1-8b")
    words, error, rounding = published_error(model, {"bytes": 20, "name": "x"})
    assert words == "16.1 for 20 GB"
    assert error == pytest.approx(-0.197, abs=1e-3)
    assert rounding == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("config", "numbers"),
    [
        (
            {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
            65_536,
        ),
        ({"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 35_136),
        (
            {
                "hybrid_override_pattern": "M*E*",
                "num_key_value_heads": 2,
                "head_dim": 64,
                "num_hidden_layers": 4,
            },
            512,
        ),
    ],
)
def test_kv_by_hand_counts_the_numbers_of_attention_layers(config, numbers):
    assert kv_bytes(config, 2.0) == 2 * numbers
    assert kv_bytes({"text_config": config}, 1.0) == numbers
