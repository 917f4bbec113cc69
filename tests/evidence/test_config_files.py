"""Sizes of checkpoints: the parts that are weighed are the model's."""

import pytest

from evidence.accuracy.config_files import checkpoint_parts, published_error, weight_gigabytes
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
