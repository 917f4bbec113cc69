"""Layers on stages: whole models, runs of equal layers, and stages that hold the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from simulator.layout.parameters import parameters
from simulator.layout.stages import FIRST, LAST, Spread, Stages
from simulator.models import LayerKind
from simulator.ops.counts import model_parameters
from simulator.plan import Plan, Plans
from simulator.training import predict

DENSE, EXPERTS = LayerKind(), LayerKind(experts=True)
DEEPSEEK = {"model": "deepseek-v3", "cluster": "dgx-h100", "devices": 256, "seq_len": 4096}


def of(setting, *listed):
    return Stages.of(setting, Plans.of(listed))


@pytest.mark.parametrize("model", ["llama3-8b", "deepseek-v3", "gpt-oss-120b", "glm-4.5"])
@pytest.mark.parametrize("pipeline", [1, 2, 3, 5, 8])
def test_every_layer_lies_on_one_stage(make_setting, model, pipeline):
    setting = make_setting(model, "dgx-h100", 64)
    stages = Spread.of(setting, Plans.of(Plan(pipeline=pipeline))).stages
    groups = setting.model.layer_groups.values()
    assert stages.sum(axis=0) == pytest.approx([len(layers) for layers in groups])


def test_chunks_of_two_stages_hold_whole_layers(make_setting):
    setting = make_setting("llama3.1-70b", "dgx-h100", 64)
    plan = Plan(
        pipeline=2, virtual_pipeline=3, schedule="interleaved", first_stage_layers=40, last_stage_layers=40
    )
    assert Spread.of(setting, Plans.of(plan)).lengths == (12, 14, 14, 14, 14, 12)


def test_the_first_dense_layers_lie_on_the_first_stage(make_setting):
    stages = of(make_setting(**DEEPSEEK), Plan(pipeline=8))
    assert stages.groups == (DENSE, EXPERTS)
    assert stages.layers[FIRST, 0].tolist() == [3]
    assert stages.layers[1:, 0].max() == 0


def test_a_kind_of_layer_on_half_of_a_pipeline_keeps_a_class_of_its_own(make_setting):
    """Full attention on the outer layers only: middle stages differ."""
    setting = make_setting("gpt-oss-20b", "dgx-h100", 64)
    pattern = ("full",) * 12 + ("sliding",) * 12
    setting = type(setting)(
        setting.model.model_copy(update={"attention_pattern": pattern}),
        setting.cluster,
        setting.training,
        setting.framework,
    )
    stages = of(setting, Plan(pipeline=6))
    assert stages.index[:, 0].tolist() == [0, 1, 3, 5]
    assert stages.runs is not None
    assert stages.runs[:, 0].tolist() == [0, 1, 2, LAST]
    assert stages.lengths[:, 0].tolist() == [1, 2, 2, 1]
    assert stages.count[:, 0].tolist() == [1, 2, 2, 1]
    assert [stages.name(row) for row in range(4)] == ["first", "middle 1", "middle 2", "last"]


def test_runs_follow_the_pipeline_where_kinds_of_stages_alternate(make_setting):
    """Three layers a stage of a model whose layers alternate between sliding and full attention."""
    setting = make_setting("gpt-oss-20b", "dgx-h100", 64)
    stages = of(setting, Plan(pipeline=8), Plan(pipeline=4))
    assert stages.runs is not None
    middle = stages.runs[1:-1, 0].tolist()
    assert len(set(middle)) == 2
    assert all(one != other for one, other in pairwise(middle))
    assert stages.lengths[:, 0].tolist() == [1] * 8
    assert stages.lengths[:, 1].sum() == 4


def test_middle_stages_that_differ_by_a_layer_are_two_runs(make_setting):
    stages = of(make_setting("llama3-8b", "dgx-h100", 64), Plan(pipeline=7), Plan(pipeline=8))
    assert stages.total[:, 0].tolist() == [4, 5, 4, 4]
    assert stages.lengths[:, 0].tolist() == [1, 4, 1, 1]
    assert stages.lengths[:, 1].tolist() == [1, 6, 0, 1]


def test_stages_of_a_uniform_model_fall_into_three_classes(make_setting):
    stages = of(make_setting("llama3-70b", "dgx-h100", 64), Plan(pipeline=8), Plan(pipeline=2), Plan())
    assert stages.count.tolist() == [[1, 1, 1], [6, 0, 0], [1, 1, 0]]
    assert stages.total[:, 0].tolist() == [10, 10, 10]


@pytest.mark.parametrize("model", ["deepseek-v3", "gpt-oss-120b"])
def test_one_plan_falls_on_stages_as_it_does_among_others(make_setting, model):
    setting = make_setting(model, "dgx-h100", 64)
    listed = [
        Plan(pipeline=4),
        Plan(pipeline=8),
        Plan(pipeline=4, virtual_pipeline=3, schedule="interleaved"),
        Plan(pipeline=2),
        Plan(),
    ]
    together = of(setting, *listed)
    for number, plan in enumerate(listed):
        alone = of(setting, plan)
        rows = [*range(len(alone.index) - 1), LAST]
        assert np.array_equal(together.layers[rows, :, number], alone.layers[..., 0])
        assert np.array_equal(together.index[rows, number], alone.index[:, 0])


def test_a_dense_stage_holds_no_experts(make_setting):
    setting = make_setting(**DEEPSEEK)
    plans = Plans.of(Plan(pipeline=16, first_stage_layers=3, expert=16, data=16))
    counts = parameters(setting, plans, Stages.of(setting, plans))
    assert counts.experts[FIRST, 0] == 0
    assert counts.experts[1, 0] > 0


def test_parameters_over_all_stages_are_the_models(make_setting):
    setting = make_setting(**DEEPSEEK)
    for plan in (Plan(pipeline=8), Plan(pipeline=4), Plan()):
        plans = Plans.of(plan)
        stages = Stages.of(setting, plans)
        counts = parameters(setting, plans, stages)
        assert (stages.count * counts.total).sum() == pytest.approx(model_parameters(setting.model), rel=0.03)


def test_stages_cut_by_weights_are_those_that_nanotron_prints(make_setting):
    """Llama 3 8B on eight stages: 5, 4, 4, 5, 4, 4, 4 and 2 layers, the last with the output layer (nanotron,
    docs on 3D parallelism). A plan's own ends count before the release's."""
    setting = make_setting("llama3-8b", "dgx-h100", 64, framework="nanotron")
    stages = of(setting, Plan(pipeline=8), Plan(pipeline=8, first_stage_layers=4, last_stage_layers=4))
    assert stages.total[FIRST].tolist() == [5, 4]
    assert stages.total[LAST].tolist() == [2, 4]
    assert stages.total[1].tolist() == [5, 4]
    assert (stages.total * stages.count).sum(axis=0).tolist() == [32, 32]


def test_ranks_of_a_sharded_optimizer_cost_loops_where_the_release_makes_them(make_setting):
    setting = make_setting("llama3-8b", "dgx-h100", 64, framework="nanotron")
    plans = Plans.of(Plan(tensor=8, data=8, zero=zero) for zero in (0, 1))
    plain, sharded = predict(setting, plans).seconds["optimizer"]
    loops = setting.framework.host.seconds_per_shard * 32 * 8
    assert sharded > loops > sharded - plain


@pytest.mark.parametrize(("model", "tensors", "layers"), [("llama3-8b", 9, 32), ("qwen3-8b", 11, 36)])
def test_updates_of_sharded_tensors_wait_for_the_host_where_it_reads_the_loss(
    make_setting, model, tensors, layers
):
    """Nine tensors of a layer, 11 with norms of heads; with stages, of a device's layers alone."""
    plans = Plans.of([Plan(data=64, zero=3), Plan(data=32, pipeline=2)])
    waits, none = (
        make_setting(model, "dgx-h100", 64, framework="prime-rl-sft", **keys)
        for keys in ({}, {"host": {"seconds_per_tensor": 0.0}})
    )
    each = waits.framework.host.seconds_per_tensor
    more = predict(waits, plans).seconds["optimizer"] - predict(none, plans).seconds["optimizer"]
    assert more == pytest.approx([tensors * layers * each, tensors * layers / 2 * each])


def test_a_host_that_waits_for_the_end_of_a_step_adds_the_same_to_every_step(make_setting):
    plans = Plans.of([Plan(data=64), Plan(data=8, tensor=8, micro_batch=2)])
    waits, none = (
        make_setting("llama3-8b", "dgx-h100", 64, framework="nanotron", **keys)
        for keys in ({}, {"host": {"seconds_per_step": 0.0}})
    )
    more = predict(waits, plans).time - predict(none, plans).time
    assert more == pytest.approx(waits.framework.host.seconds_per_step)
