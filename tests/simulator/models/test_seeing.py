"""Names of models that see."""

import pytest

from simulator.models import models


@pytest.mark.parametrize("name", ["qwen3-vl-8b", "Qwen/Qwen3-VL-8B-Instruct", "qwen2.5-vl-7b"])
def test_a_model_that_sees_has_its_own_name_which_finds_it_again(name):
    model = models.get(name)
    assert "-vl-" in model.name
    assert models.get(model.name) == model
