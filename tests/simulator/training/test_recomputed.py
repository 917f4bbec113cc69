"""What recomputation repeats of a layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.plan import Plan, Plans
from simulator.state.adapter import Adapter
from simulator.training.layer import layer


def passes(setting, **plan):
    """Forward and recomputed costs of the first kind of layer under full recomputation."""
    kind = next(iter(setting.model.layer_groups))
    costs = layer(setting, Plans.of([Plan(recompute="full", **plan)]), kind)
    return costs.forward, costs.recompute


@pytest.mark.parametrize("framework", ["torch-fsdp", "torchtitan", "kempnerforge", "paxml", "maxtext"])
def test_full_recomputation_stops_before_the_last_product_of_a_dense_layer(make_setting, framework):
    setting = make_setting("llama3-8b", "dgx-h100", 8, framework)
    forward, again = passes(setting, data=8)
    # The MLP's last product has 58.7 of the 218.1 million weights of a layer.
    share = float(again.work.seconds["gemm"][0] / forward.work.seconds["gemm"][0])
    assert share == pytest.approx(1 - 58.7 / 218.1, abs=0.03)
    assert again.work.seconds["attention"] == pytest.approx(forward.work.seconds["attention"])
    assert again.work.launches == pytest.approx(forward.work.launches - 1)


@pytest.mark.parametrize(
    ("model", "framework", "tensor"),
    [
        ("llama3-8b", "megatron-core", 1),
        ("llama3-8b", "torchtitan", 2),
        ("qwen3-30b-a3b", "torchtitan", 1),
        ("gemma2-9b", "torchtitan", 1),
    ],
)
def test_what_follows_the_last_product_has_it_repeated(make_setting, model, framework, tensor):
    # Re-entrant checkpoints, reductions between tensor-parallel ranks, experts, norms after the MLP.
    forward, again = passes(make_setting(model, "dgx-h100", 8, framework), tensor=tensor, data=8 // tensor)
    assert again.work.device == pytest.approx(forward.work.device)


def test_adapters_of_the_last_product_have_it_repeated(make_setting):
    setting = make_setting("llama3-8b", "dgx-h100", 8, "torchtitan")
    setting = replace(setting, training=setting.training.model_copy(update={"adapter": Adapter(rank=16)}))
    forward, again = passes(setting, data=8)
    assert again.work.device == pytest.approx(forward.work.device)
