"""Traffic of a step: what formulas of the literature say, and the same on the engine's timeline."""

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.ops.counts import model_parameters
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training import predict
from simulator.training.step_graph import run
from simulator.training.step_graph.build import step_program
from simulator.training.traffic import link_bandwidth, step_traffic


def scenario(plan, gpus=64, batch=128, framework="megatron-core", model="llama2-7b", seq_len=2048):
    data = {
        "model": model,
        "cluster": "dgx-h100",
        "gpus": gpus,
        "framework": framework,
        "workload": {"seq_len": seq_len, "global_batch": batch},
        "plan": plan,
    }
    made = make_scenario(data, "test", Path())
    return made.setting, made.plan


def total(moved, kind):
    return sum(level.get(kind, 0.0) for level in moved.values())


def test_tensor_parallelism_sends_four_all_reduces_a_layer():
    """Narayanan et al. 2021, section 3.2: 8 b s h (t - 1) / t bytes a layer and micro batch, at 16 bits."""
    setting, plan = scenario({"tensor": 8, "overlap_tensor": "none"})
    moved = step_traffic(setting, plan)
    layer = 4 * 2 * 7 / 8 * 2048 * 4096 * 2
    ends = total(moved, "tensor") - 16 * 32 * layer
    assert 0 < ends < 0.03 * total(moved, "tensor")
    assert "tensor" not in moved["network"]


def test_traffic_is_that_of_the_stage_that_takes_longest():
    """The last stage is the slowest by its output layer, though the first holds and sends more."""
    plan = {"tensor": 4, "pipeline": 4, "first_stage_layers": 9, "last_stage_layers": 7}
    setting, made = scenario(plan, model="llama3-8b", seq_len=8192)
    layer = 4 * 2 * 3 / 4 * 8192 * 4096 * 2
    ends = step_traffic(setting, made)["nvlink"]["tensor"] / (32 * layer) - 7
    assert 0 < ends < 0.5
    step = predict(setting, Plans.of(made))
    assert step.sent["tensor"].seconds == step.communication["tensor"]


def test_full_sharding_sends_three_times_its_parameters():
    """Rajbhandari et al. 2020, section 7.2: two gathers and one reduce-scatter a step."""
    setting, plan = scenario({"zero": 3}, batch=64, framework="torch-fsdp")
    moved = step_traffic(setting, plan)
    framework = setting.framework
    sent = (
        model_parameters(setting.model)
        * (2 * framework.gathers.bytes + setting.choices.reduce_bytes)
        * 63
        / 64
    )
    assert total(moved, "parameters") == pytest.approx(sent, rel=0.01)
    assert moved["network"]["parameters"] == pytest.approx(total(moved, "parameters") / 8)


def test_a_replica_a_node_reduces_over_the_network_only():
    setting, plan = scenario({"tensor": 8, "zero": 0})
    moved = step_traffic(setting, plan)
    held = predict(setting, Plans.of(plan)).parameters.total[0, 0]
    sent = 2 * 7 / 8 * held * setting.choices.reduce_bytes
    assert moved["network"]["gradients"] == pytest.approx(sent)
    assert "gradients" not in moved["nvlink"]


def test_sharing_links_moves_the_same_bytes():
    """Ring attention and gathers of full sharding meet on the network; alone they would not."""
    setting, plan = scenario({"tensor": 8, "context": 4, "sequence_parallel": True, "zero": 3}, batch=16)
    program = replace(step_program(setting, plan), detail=True)

    def apart(segments):
        return tuple(replace(each, load=each.load._replace(share=0.0)) for each in segments)

    work = tuple(
        replace(each, forward=apart(each.forward), backward=apart(each.backward)) for each in program.work
    )
    shared, alone = run(program), run(replace(program, work=work))
    assert shared.period > 1.001 * alone.period
    assert shared.traffic == pytest.approx(alone.traffic)


@pytest.mark.parametrize(
    "plan",
    [
        {"tensor": 4, "pipeline": 4, "zero": 1, "schedule": "zb-h1"},
        {"tensor": 2, "pipeline": 4, "virtual_pipeline": 2, "sequence_parallel": True, "context": 2},
        {"zero": 3},
    ],
)
def test_the_timeline_carries_the_same_bytes(plan):
    setting, plan = scenario(plan)
    timeline = run(replace(step_program(setting, plan), detail=True))
    moved, capacity = step_traffic(setting, plan), link_bandwidth(setting.cluster)
    assert timeline.traffic.keys() == {level for level, kinds in moved.items() if kinds}
    for level, size in timeline.traffic.items():
        # First and last stages differ from the slowest one, and the last boundary has no next stage.
        assert size / timeline.ranks == pytest.approx(sum(moved[level].values()), rel=0.15)
    for task, sent in timeline.graph.traffic.items():
        for level, size in sent:
            assert size <= 1.001 * capacity[level] * (timeline.ends[task] - timeline.starts[task])
