"""Memory of levers: CUDA graphs and the second micro batch of combined passes."""

from __future__ import annotations

import pytest

from simulator.layout.parameters import parameters
from simulator.layout.stages import FIRST, Stages
from simulator.plan import Plan, Plans
from simulator.training.activations import kept_by_layers
from simulator.training.lever_memory import STEP_GRAPHS
from simulator.training.memory import memory

DEEPSEEK = Plan(pipeline=4, data=16, expert=16, virtual_pipeline=2, schedule="interleaved")


def of(setting, *listed):
    plans = Plans.of(listed)
    stages = Stages.of(setting, plans)
    return memory(setting, plans, stages, parameters(setting, plans, stages))


@pytest.mark.parametrize(("graphs", "share"), [("layer", 1.0), ("attention", 0.3)])
def test_graphs_of_parts_hold_a_layer_beside(make_setting, graphs, share):
    """A graphed pass allocates at most a gradient of what one layer keeps; attention keeps less than all."""
    setting = make_setting("llama2-7b", "dgx-h100", memory={"fragmentation": 1.0})
    plan = Plan(data=64, graphs=graphs)
    bare, held = (of(setting, each) for each in (plan.model_copy(update={"graphs": "none"}), plan))
    plans = Plans.of(plan)
    stages = Stages.of(setting, plans)
    kept = kept_by_layers(setting, plans, stages.groups, parameters(setting, plans, stages).ops)
    layer = float(kept[0].between_passes[0])
    assert held.peak - bare.peak == pytest.approx(held.parts["graphs"][FIRST])
    assert share * layer < 1.001 * held.parts["graphs"][FIRST, 0] <= 1.001 * layer
    assert "graphs" not in bare.parts


def test_graphs_of_the_router_hold_nothing_of_dense_layers(make_setting):
    setting = make_setting("llama2-7b", "dgx-h100")
    assert "graphs" not in of(setting, Plan(data=64, graphs="router")).parts


def test_graphs_of_steps_keep_a_pool_of_their_own(make_setting):
    setting = make_setting("llama2-7b", "dgx-h100")
    plans = [Plan(data=64, graphs=graphs) for graphs in ("none", "step")]
    none, step = of(setting, *plans).peak
    assert step == pytest.approx((1 + STEP_GRAPHS) * none)
    assert [float(of(setting, plan).peak[0]) for plan in plans] == pytest.approx([none, step])


@pytest.mark.parametrize("changes", [{}, {"recompute": "selective"}])
def test_combined_passes_hold_a_layer_of_the_second_micro_batch(make_setting, changes):
    """Megatron-LM's pull request 6311: 1.6 GB for layers of DeepSeek-V3 with sequences of 2,048."""
    setting = make_setting("deepseek-v3", "dgx-h100", framework="megatron-bridge", global_batch=256)
    plan = DEEPSEEK.model_copy(update=changes)
    plans = Plans.of(plan)
    stages = Stages.of(setting, plans)
    kept = kept_by_layers(setting, plans, stages.groups, parameters(setting, plans, stages).ops)
    layer = max(float((each.between_passes + each.reopened)[0]) for each in kept)
    alone, both = of(setting, plan, plan.model_copy(update={"overlap_expert": True})).peak
    assert both - alone == pytest.approx(layer * setting.framework.memory.fragmentation)
    assert 0.5 < (both - alone) / 1.6e9 < 1


@pytest.mark.parametrize("changes", [{"expert": 1}, {"recompute": "full"}])
def test_nothing_more_is_held_where_nothing_overlaps(make_setting, changes):
    setting = make_setting("mixtral-8x7b", "dgx-h100", global_batch=256)
    plan = Plan(pipeline=4, data=16, expert=8, virtual_pipeline=2, schedule="interleaved")
    plan = plan.model_copy(update=changes)
    alone, both = of(setting, plan, plan.model_copy(update={"overlap_expert": True})).peak
    assert both == alone
